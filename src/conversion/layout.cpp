#include "conversion/layout.h"

#include <algorithm>
#include <array>
#include <utility>

#include "arrays/tensor_index.h"
#include "base/error.h"

namespace espalier::conversion {
namespace {

// The first of several with one architecture is what a GGUF file of it becomes.
constexpr std::array layouts = {
    Layout{.model_type = "llama",
           .architecture = "llama",
           .class_name = "LlamaForCausalLM",
           .pairs = true},
    Layout{.model_type = "mistral",
           .architecture = "llama",
           .class_name = "MistralForCausalLM",
           .pairs = true},
    Layout{.model_type = "qwen2", .architecture = "qwen2", .class_name = "Qwen2ForCausalLM"},
    Layout{.model_type = "qwen3", .architecture = "qwen3", .class_name = "Qwen3ForCausalLM"},
    Layout{.model_type = "gemma",
           .architecture = "gemma",
           .class_name = "GemmaForCausalLM",
           .norm_plus_one = true},
    Layout{.model_type = "gemma2",
           .architecture = "gemma2",
           .class_name = "Gemma2ForCausalLM",
           .norm_plus_one = true,
           .four_norms = true},
    Layout{.model_type = "gemma3_text",
           .architecture = "gemma3",
           .class_name = "Gemma3ForCausalLM",
           .norm_plus_one = true,
           .four_norms = true},
};

/// A name in each way of naming, without `.weight` and `.bias`; empty where there is none.
struct Names {
  std::string_view hugging_face;
  std::string_view gguf;
  std::string_view original = {};  // Meta's and Mistral's own
};

constexpr std::array root_names = {
    Names{"model.embed_tokens", "token_embd", "tok_embeddings"},
    Names{"model.norm", "output_norm", "norm"},
    Names{"lm_head", "output", "output"},
};

constexpr std::array layer_names = {
    Names{"self_attn.q_proj", "attn_q", "attention.wq"},
    Names{"self_attn.k_proj", "attn_k", "attention.wk"},
    Names{"self_attn.v_proj", "attn_v", "attention.wv"},
    Names{"self_attn.o_proj", "attn_output", "attention.wo"},
    Names{"self_attn.q_norm", "attn_q_norm"},
    Names{"self_attn.k_norm", "attn_k_norm"},
    Names{"mlp.gate_proj", "ffn_gate", "feed_forward.w1"},
    Names{"mlp.up_proj", "ffn_up", "feed_forward.w3"},
    Names{"mlp.down_proj", "ffn_down", "feed_forward.w2"},
    Names{"input_layernorm", "attn_norm", "attention_norm"},
};

constexpr std::array two_norm_names = {Names{"post_attention_layernorm", "ffn_norm", "ffn_norm"}};

constexpr std::array four_norm_names = {
    Names{"post_attention_layernorm", "post_attention_norm"},
    Names{"pre_feedforward_layernorm", "ffn_norm"},
    Names{"post_feedforward_layernorm", "post_ffw_norm"},
};

/// What stands before a layer's number.
constexpr Names layers_prefix = {"model.layers.", "blk.", "layers."};

using Member = std::string_view Names::*;

template <typename Table>
std::optional<std::string_view> translate(const Table& table, std::string_view name, Member from,
                                          Member to) {
  const auto found = std::ranges::find(table, name, from);
  if (found == table.end() || name.empty()) return std::nullopt;
  return (*found).*to;
}

std::optional<std::string> translate(const Layout& layout, const std::string& name, Member from,
                                     Member to) {
  const auto dot = name.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::string suffix = name.substr(dot);
  const std::string stem = name.substr(0, dot);
  const std::string_view layers = layers_prefix.*from;
  if (suffix != ".weight" && suffix != ".bias") return std::nullopt;
  if (!stem.starts_with(layers)) {
    const auto root = translate(root_names, stem, from, to);
    if (!root) return std::nullopt;
    return std::string(*root) + suffix;
  }
  const auto end = stem.find('.', layers.size());
  if (end == std::string::npos) return std::nullopt;
  const std::string_view own = std::string_view(stem).substr(end + 1);
  auto found = translate(layer_names, own, from, to);
  if (!found) {
    found = layout.four_norms ? translate(four_norm_names, own, from, to)
                              : translate(two_norm_names, own, from, to);
  }
  if (!found) return std::nullopt;
  return std::string(layers_prefix.*to) + stem.substr(layers.size(), end - layers.size()) + "." +
         std::string(*found) + suffix;
}

bool is_norm(const std::string& gguf_name) { return gguf_name.ends_with("norm.weight"); }

/// The heads of q or k when `gguf_name` is theirs; else 0.
int rotated_heads(const std::string& gguf_name, const HeadCounts& heads) {
  if (gguf_name.find(".attn_q.") != std::string::npos) return heads.query;
  return gguf_name.find(".attn_k.") != std::string::npos ? heads.key : 0;
}

void change(SourceTensor& tensor, const Layout& layout, const HeadCounts& heads,
            const std::string& gguf_name, bool to_gguf) {
  if (const int count = layout.pairs ? rotated_heads(gguf_name, heads) : 0; count > 0) {
    tensor.reorder(
        {to_gguf ? HeadOrder::Kind::halves_to_pairs : HeadOrder::Kind::pairs_to_halves, count});
  }
  if (layout.norm_plus_one && is_norm(gguf_name)) tensor.shift(to_gguf ? 1.0F : -1.0F);
}

template <std::string_view Layout::*member>
std::string joined() {
  std::string text;
  for (const Layout& layout : layouts) {
    const std::string name(layout.*member);
    if (text.find(name + ",") != std::string::npos) continue;
    text += name + ", ";
  }
  text.resize(text.size() - 2);
  return text;
}

[[noreturn]] void fail(const std::string& path, const SourceTensor& tensor) {
  throw base::LoadError(path + ": tensor " + arrays::shown_name(tensor.name()) +
                        " has no name in the other container");
}

std::vector<SourceTensor> to_hugging_face(const Layout& layout, const HeadCounts& heads,
                                          std::vector<SourceTensor> tensors,
                                          const std::string& path, Member from) {
  // The frequencies are in the configuration.
  std::erase_if(tensors, [](const SourceTensor& tensor) {
    return tensor.name() == "rope_freqs.weight" || tensor.name() == "rope.freqs";
  });
  for (SourceTensor& tensor : tensors) {
    const auto name = translate(layout, tensor.name(), from, &Names::hugging_face);
    const auto gguf = translate(layout, tensor.name(), from, &Names::gguf);
    if (!name || !gguf) fail(path, tensor);
    change(tensor, layout, heads, *gguf, false);
    tensor.rename(*name);
  }
  return tensors;
}

}  // namespace

const Layout* find_layout_of_model_type(std::string_view model_type) {
  const auto* found = std::ranges::find(layouts, model_type, &Layout::model_type);
  return found == layouts.end() ? nullptr : found;
}

const Layout* find_layout_of_architecture(std::string_view architecture) {
  const auto* found = std::ranges::find(layouts, architecture, &Layout::architecture);
  return found == layouts.end() ? nullptr : found;
}

std::string known_model_types() { return joined<&Layout::model_type>(); }
std::string known_architectures() { return joined<&Layout::architecture>(); }

std::vector<SourceTensor> to_gguf_layout(const Layout& layout, const HeadCounts& heads,
                                         std::vector<SourceTensor> tensors,
                                         const std::string& path) {
  for (SourceTensor& tensor : tensors) {
    const auto name = translate(layout, tensor.name(), &Names::hugging_face, &Names::gguf);
    if (!name) fail(path, tensor);
    change(tensor, layout, heads, *name, true);
    tensor.rename(*name);
  }
  return tensors;
}

std::vector<SourceTensor> to_hugging_face_layout(const Layout& layout, const HeadCounts& heads,
                                                 std::vector<SourceTensor> tensors,
                                                 const std::string& path) {
  return to_hugging_face(layout, heads, std::move(tensors), path, &Names::gguf);
}

std::vector<SourceTensor> from_original_layout(const Layout& layout, const HeadCounts& heads,
                                               std::vector<SourceTensor> tensors,
                                               const std::string& path) {
  return to_hugging_face(layout, heads, std::move(tensors), path, &Names::original);
}

}  // namespace espalier::conversion
