#include "models/audit.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

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
    Ignorable{"rotary_emb.cos_cached", "computed from the configuration"},
    Ignorable{"rotary_emb.sin_cached", "computed from the configuration"},
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

constexpr std::array ignorable_groups = {
    IgnorableGroup{"mtp.", "drafts tokens ahead"},
    IgnorableGroup{"cls.predictions.", "guesses masked words"},
    IgnorableGroup{"cls.seq_relationship.", "guesses whether sentences follow one another"},
};

bool is_ignorable(const std::string& name, const Descriptor& descriptor) {
  // Some checkpoints store a tied head a second time.
  if (descriptor.tied_head && name == descriptor.names.head + ".weight") {
    return true;
  }
  if (std::ranges::any_of(ignorable_groups, [&](const IgnorableGroup& group) {
        return name.starts_with(group.prefix);
      })) {
    return true;
  }
  return std::ranges::any_of(ignorable,
                             [&](const Ignorable& entry) { return name.ends_with(entry.suffix); });
}

}  // namespace

void check_all_tensors_read(const Descriptor& descriptor, const layers::WeightReader& weights) {
  constexpr std::size_t shown = 5;
  std::vector<std::string> unread = weights.unread();
  std::erase_if(unread, [&](const std::string& name) { return is_ignorable(name, descriptor); });
  if (unread.empty()) {
    return;
  }
  std::string names;
  for (std::size_t i = 0; i < std::min(shown, unread.size()); ++i) {
    names += (i == 0 ? "'" : ", '") + unread[i] + "'";
  }
  if (unread.size() > shown) {
    names += " and " + std::to_string(unread.size() - shown) + " more";
  }
  throw base::LoadError(weights.path() + ": the model has no use for the tensors " + names + ".");
}

}  // namespace espalier::models
