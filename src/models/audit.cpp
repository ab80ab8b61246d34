#include "models/audit.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <spdlog/spdlog.h>

#include "arrays/tensor_index.h"
#include "base/error.h"

namespace espalier::models {
namespace {

/// A tensor that may lie in a file unread, by the end of its name, and why.
struct Ignorable {
  std::string_view suffix;
  std::string_view reason;
};

constexpr std::array ignorable = {
    Ignorable{"rotary_emb.inv_freq", "computed from the configuration"},
    Ignorable{"rope.freqs", "computed from the configuration"},
    Ignorable{"rotary_emb.cos_cached", "computed from the configuration"},
    Ignorable{"rotary_emb.sin_cached", "computed from the configuration"},
    Ignorable{".in_sum2", "importance matrix: for quantizing anew"},
    Ignorable{".counts", "importance matrix: for quantizing anew"},
    Ignorable{".input_scale", "for activations in FP8, which are not rounded so here"},
    Ignorable{".activation_scale", "for activations in FP8, which are not rounded so here"},
    Ignorable{".k_scale", "for keys in FP8, which are kept in a type of one's choice here"},
    Ignorable{".v_scale", "for values in FP8, as with keys"},
    Ignorable{".q_scale", "for queries in FP8, which are not rounded so here"},
    Ignorable{".output_scale", "for results in FP8, which are not rounded so here"},
    Ignorable{"self_attn.bias", "a causal mask"},
    Ignorable{".attn.bias", "a causal mask"},
    Ignorable{"attn.masked_bias", "a causal mask"},
    Ignorable{".attention.bias", "a causal mask"},
    Ignorable{"attention.masked_bias", "a causal mask"},
    Ignorable{"self_attn.slope_rate", "computed from the configuration"},
    Ignorable{"self_attn.query_decay", "computed from the configuration"},
    Ignorable{"self_attn.key_decay", "computed from the configuration"},
    Ignorable{"self_attn.diagonal_decay", "computed from the configuration"},
    Ignorable{"embeddings.position_ids", "the numbers from 0 on"},
    Ignorable{"pooler.dense.weight", "pre-training's view of the first token"},
    Ignorable{"pooler.dense.bias", "pre-training's view of the first token"},
};

/// What may lie in a file unread by the beginning of its name.
struct IgnorableGroup {
  std::string_view prefix;
  std::string_view reason;
};

/// What a family's checkpoints hold and nothing here needs, by a part of the name.
struct IgnorableOfFamily {
  std::string_view family;
  std::string_view part;
  std::string_view reason;
};

constexpr auto ignorable_of_families = std::to_array<IgnorableOfFamily>({
    {"deepseek_v32", ".indexer.", "chooses among more positions than the context has"},
    {"glm_moe_dsa", ".indexer.", "chooses among more positions than the context has"},
});

constexpr auto ignorable_groups = std::to_array<IgnorableGroup>({
    IgnorableGroup{"mtp.", "drafts tokens ahead"},
    IgnorableGroup{"cls.predictions.", "guesses masked words"},
    IgnorableGroup{"cls.seq_relationship.", "guesses whether sentences follow one another"},
    IgnorableGroup{"vision_tower.", "sees"},
    IgnorableGroup{"vision_model.", "sees"},
    IgnorableGroup{"visual.", "sees"},
    IgnorableGroup{"model.vision_tower.", "sees"},
    IgnorableGroup{"model.vision_model.", "sees"},
    IgnorableGroup{"model.visual.", "sees"},
    IgnorableGroup{"multi_modal_projector.", "sees"},
    IgnorableGroup{"model.multi_modal_projector.", "sees"},
    IgnorableGroup{"embed_vision.", "sees"},
    IgnorableGroup{"model.embed_vision.", "sees"},
    IgnorableGroup{"audio_tower.", "hears"},
    IgnorableGroup{"model.audio_tower.", "hears"},
    IgnorableGroup{"embed_audio.", "hears"},
    IgnorableGroup{"model.embed_audio.", "hears"},
    IgnorableGroup{"image_newline", "parts rows of pictures"},
    IgnorableGroup{"model.image_newline", "parts rows of pictures"},
    IgnorableGroup{"talker.", "speaks"},
    IgnorableGroup{"token2wav.", "speaks"},
    IgnorableGroup{"code2wav.", "speaks"},
});

/// Whether a tensor lies outside the text model, in a checkpoint that names one.
bool is_of_another_part(const std::string& name, const TensorNames& names) {
  for (const std::string_view part : {"language_model.", "text_model.", "thinker.model."}) {
    const auto found = names.layers.find(part);
    if (found != std::string::npos) {
      return !name.starts_with(names.layers.substr(0, found + part.size())) &&
             !name.starts_with(names.head + ".");
    }
  }
  return false;
}

/// AutoGPTQ wrote a bias for every layer that it quantized, zeros where the model has none.
bool is_zero_bias(const std::string& name, layers::WeightReader& weights) {
  constexpr std::string_view suffix = ".bias";
  if (!name.ends_with(suffix) ||
      !weights.contains(name.substr(0, name.size() - suffix.size()) + ".qweight")) {
    return false;
  }
  const std::vector<float> values = weights.flat(name, weights.outputs(name));
  return std::ranges::all_of(values, [](float value) { return value == 0; });
}

/// A name as messages show it: in quotes, cut when it is too long to read.
std::string in_quotes(const std::string& name) {
  std::string shown = arrays::shown_name(name);
  shown.front() = '\'';
  shown.back() = '\'';
  return shown;
}

}  // namespace

std::string_view reason_to_ignore(const std::string& name, const Descriptor& descriptor) {
  if (descriptor.tied_head && name.starts_with(descriptor.names.head + ".")) {
    return "a second copy of the tied head";
  }
  if (is_of_another_part(name, descriptor.names)) {
    return "no part of the text model";
  }
  for (const IgnorableGroup& group : ignorable_groups) {
    if (name.starts_with(group.prefix)) {
      return group.reason;
    }
  }
  for (const IgnorableOfFamily& entry : ignorable_of_families) {
    if (descriptor.family == entry.family && name.find(entry.part) != std::string::npos) {
      return entry.reason;
    }
  }
  for (const Ignorable& entry : ignorable) {
    if (name.ends_with(entry.suffix)) {
      return entry.reason;
    }
  }
  return {};
}

void check_all_tensors_read(const Descriptor& descriptor, layers::WeightReader& weights) {
  constexpr std::size_t shown = 5;
  std::vector<std::string> unread = weights.unread();
  std::erase_if(unread, [&](const std::string& name) {
    const std::string_view reason = is_zero_bias(name, weights)
                                        ? "a bias of zeros adds nothing"
                                        : reason_to_ignore(name, descriptor);
    if (!reason.empty()) {
      spdlog::debug("{}: tensor '{}' is left unread: {}", weights.path(), name, reason);
    }
    return !reason.empty();
  });
  if (unread.empty() && weights.faults().empty()) {
    return;
  }
  if (unread.empty()) {
    weights.fail_with();
  }
  std::string names;
  for (std::size_t i = 0; i < std::min(shown, unread.size()); ++i) {
    names += (i == 0 ? "" : ", ") + in_quotes(unread[i]);
  }
  if (unread.size() > shown) {
    names += " and " + std::to_string(unread.size() - shown) + " more";
  }
  weights.fail_with("the model has no use for the tensors " + names);
}

}  // namespace espalier::models
