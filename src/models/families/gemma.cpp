#include <cmath>
#include <optional>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {
namespace {

constexpr int gemma3_pattern = 6;  // each sixth layer is full
constexpr int gemma2_pattern = 2;

/// GGUF does not state the query scale, which differs from 1/sqrt(head_dim) in one size each.
constexpr std::size_t layers_of_gemma2_27b = 46;
constexpr std::size_t layers_of_gemma3_27b = 62;

/// Gemma 1: Llama with a scaled embedding, GELU, and norm weights stored less one.
void set_gemma(Descriptor& decoder, const NormDescriptor& norm, layers::Activation activation) {
  set_pre_norms(decoder, norm);
  set_activation(decoder, activation);
  decoder.embedding_scale = std::sqrt(static_cast<float>(decoder.width));
}

/// Gemma 2 and 3: norms after both parts too.
void set_post_norms(Descriptor& decoder, const NormDescriptor& norm) {
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention_post_norm = norm;
    layer.mlp_post_norm = norm;
  }
}

NormDescriptor offset_norm(const ConfigReader& config) {
  NormDescriptor norm = rms_norm(config);
  norm.weight_offset = 1;
  return norm;
}

/// What the configurations of all Gemmas have in common.
Descriptor gemma_decoder(ConfigReader& config, std::string_view activation_key) {
  config.set_defaults({{"tie_word_embeddings", true}, {"head_dim", 256}, {"rms_norm_eps", 1e-6}});
  Descriptor decoder = dense_decoder(config);
  set_gemma(decoder, offset_norm(config), read_activation(config, activation_key));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  return decoder;
}

/// Query scale and soft-caps, from Gemma 2 on.
void read_scores(const ConfigReader& config, Descriptor& decoder) {
  decoder.logit_softcap = static_cast<float>(config.number("final_logit_softcapping", 0));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().scale =
        1 / std::sqrt(static_cast<float>(config.number("query_pre_attn_scalar")));
    layer.attention().softcap = static_cast<float>(config.number("attn_logit_softcapping", 0));
  }
}

void scale_by_width(Descriptor& decoder) {
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().scale =
        std::sqrt(static_cast<float>(layer.attention().heads) / static_cast<float>(decoder.width));
  }
}

/// Gemma 3: q and k norms, and a RoPE of their own for the sliding layers.
void set_gemma3(Descriptor& decoder, const NormDescriptor& norm, const RopeSettings& full_rope,
                const RopeSettings& local_rope) {
  const int head_dim = decoder.layers.front().attention().head_dim;
  const RopeDescriptor full = make_rope(full_rope, head_dim);
  const RopeDescriptor local = make_rope(local_rope, head_dim);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qk_norm = QkNormDescriptor{.norm = norm};
    layer.attention().rope = layer.attention().window > 0 ? local : full;
  }
}

}  // namespace

Descriptor read_gemma(ConfigReader& config) {
  // Files from before transformers 4.39 say "gelu" in `hidden_act` and mean the tanh form.
  const std::string older = config.string("hidden_act", "gelu");
  const bool stated = config.contains("hidden_activation") && older == "gelu";
  if (!stated) {
    config.set_defaults({{"activation", older == "gelu" ? "gelu_pytorch_tanh" : older}});
  }
  config.require_off("use_bidirectional_attention");
  config.ignore("hidden_activation");
  Descriptor decoder = gemma_decoder(config, stated ? "hidden_activation" : "activation");
  set_rope(decoder, read_rope(config));
  return decoder;
}

Descriptor read_gemma(const GgufReader& file) {
  Descriptor decoder = dense_decoder(file);
  set_gemma(decoder, rms_norm(file), layers::Activation::gelu_tanh);
  set_rope(decoder, read_rope(file, decoder.layers.front().attention().head_dim));
  return decoder;
}

Descriptor read_gemma2(ConfigReader& config) {
  config.set_defaults({{"final_logit_softcapping", 30.0}, {"attn_logit_softcapping", 50.0}});
  config.ignore("hidden_act");
  Descriptor decoder = read_vaultgemma(config);
  set_post_norms(decoder, offset_norm(config));
  decoder.names.mlp_norm = "pre_feedforward_layernorm";
  return decoder;
}

Descriptor read_gemma2(const GgufReader& file) {
  Descriptor decoder = read_gemma(file);
  set_post_norms(decoder, rms_norm(file));
  set_windows(decoder, every_nth_full(decoder.layers.size(), gemma2_pattern),
              file.integer("attention.sliding_window", 4096));
  decoder.logit_softcap = static_cast<float>(file.number("final_logit_softcapping", 30));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().softcap = static_cast<float>(file.number("attn_logit_softcapping", 50));
  }
  if (decoder.layers.size() == layers_of_gemma2_27b) {
    scale_by_width(decoder);
  }
  return decoder;
}

Descriptor read_vaultgemma(ConfigReader& config) {
  config.set_defaults({{"query_pre_attn_scalar", 256}});
  config.require_off("use_bidirectional_attention");
  Descriptor decoder = gemma_decoder(config, "hidden_activation");
  decoder.names.mlp_norm = "pre_feedforward_layernorm";
  set_rope(decoder, read_rope(config));
  set_windows(decoder, sliding_layers(config, gemma2_pattern), config.integer("sliding_window"));
  read_scores(config, decoder);
  return decoder;
}

namespace {

/// An embedding model's layers, which see what follows too: sliding ones half a window each way.
void see_both_ways(Descriptor& decoder) {
  for (LayerDescriptor& layer : decoder.layers) {
    const AttentionDescriptor attention = layer.attention();
    layer.mixer = EncoderAttentionDescriptor{
        .heads = attention.heads,
        .kv_heads = attention.kv_heads,
        .head_dim = attention.head_dim,
        .scale = attention.scale,
        .reach = attention.window / 2,
        .qkv_bias = attention.qkv_bias,
        .output_bias = attention.output_bias,
        .qk_norm = attention.qk_norm ? std::optional(attention.qk_norm->norm) : std::nullopt,
        .rope = attention.rope};
  }
}

}  // namespace

Descriptor read_gemma3(ConfigReader& config) {
  config.set_defaults({{"hidden_activation", "gelu_pytorch_tanh"},
                       {"max_position_embeddings", 131072},
                       {"num_attention_heads", 8},
                       {"num_key_value_heads", 4},
                       {"query_pre_attn_scalar", 256},
                       {"sliding_window", 4096},
                       {"vocab_size", 262208}});
  Descriptor decoder = gemma_decoder(config, "hidden_activation");
  set_post_norms(decoder, offset_norm(config));
  decoder.names.mlp_norm = "pre_feedforward_layernorm";
  const int pattern = config.integer("sliding_window_pattern",
                                     config.integer("_sliding_window_pattern", gemma3_pattern));
  set_windows(decoder, sliding_layers(config, pattern), config.integer("sliding_window"));
  RopeSettings local_rope{.theta = config.number("rope_local_base_freq", 10000)};
  if (config.contains("rope_parameters")) {
    local_rope = read_rope(config, "sliding_attention");
  }
  set_gemma3(decoder, offset_norm(config), read_rope(config, "full_attention", 1e6), local_rope);
  read_scores(config, decoder);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().softcap = 0;  // the file may have the key, Gemma 3 knows no such cap
  }
  if (config.boolean("use_bidirectional_attention", false)) {
    see_both_ways(decoder);
  }
  return decoder;
}

Descriptor read_gemma3(const GgufReader& file) {
  Descriptor decoder = dense_decoder(file);
  const NormDescriptor norm = rms_norm(file);  // the file's weights have the one added
  set_gemma(decoder, norm, layers::Activation::gelu_tanh);
  set_post_norms(decoder, norm);
  decoder.logit_softcap = static_cast<float>(file.number("final_logit_softcapping", 0));
  const int pattern = file.integer("attention.sliding_window_pattern", gemma3_pattern);
  set_windows(decoder, every_nth_full(decoder.layers.size(), pattern),
              file.integer("attention.sliding_window"));
  set_gemma3(decoder, norm, read_rope(file, decoder.layers.front().attention().head_dim, 1e6),
             {.theta = file.number("rope.freq_base_swa", 10000)});
  if (decoder.layers.size() == layers_of_gemma3_27b) {
    scale_by_width(decoder);
  }
  return decoder;
}

}  // namespace espalier::models
