#include "models/families/gemma4.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

constexpr int full_interval = 6;

/// What a type of layers has instead of the model's own: head size and key-value heads, in the
/// older spelling (`global_head_dim`) or in `per_layer_config`, an object a layer.
void read_layer_sizes(const ConfigReader& config, Descriptor& decoder) {
  const int full_head_dim = config.integer("global_head_dim", 0);
  const int full_kv_heads = config.integer("num_global_key_value_heads", 0);
  const std::optional<ConfigReader> sizes = config.object("per_layer_config");
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    AttentionDescriptor& attention = decoder.layers[i].attention();
    if (attention.window == 0 && full_head_dim > 0) {
      attention.head_dim = full_head_dim;
    }
    if (attention.window == 0 && full_kv_heads > 0) {
      attention.kv_heads = full_kv_heads;
    }
    if (!sizes) {
      continue;
    }
    if (const std::optional<ConfigReader> own = sizes->object(std::to_string(i))) {
      attention.head_dim = own->integer("head_dim", attention.head_dim);
      attention.kv_heads = own->integer("num_key_value_heads", attention.kv_heads);
    }
    if (attention.kv_heads < 1 || attention.heads % attention.kv_heads != 0) {
      config.fail("per_layer_config", "has key-value heads that do not divide the heads");
    }
  }
}

}  // namespace

void set_normed_attention(Descriptor& decoder, const NormDescriptor& norm,
                          const RopeSettings& local_rope, const RopeSettings& full_rope) {
  NormDescriptor value_norm = norm;
  value_norm.weight = false;
  for (LayerDescriptor& layer : decoder.layers) {
    AttentionDescriptor& attention = layer.attention();
    attention.scale = 1;
    attention.qk_norm = QkNormDescriptor{.norm = norm};
    attention.value_norm = value_norm;
    attention.rope = make_rope(attention.window > 0 ? local_rope : full_rope, attention.head_dim);
  }
}

void share_keys(const ConfigReader& config, Descriptor& decoder) {
  const int layers = static_cast<int>(decoder.layers.size());
  const int shared = config.integer("num_kv_shared_layers", 0);
  const bool wide = config.boolean("use_double_wide_mlp", false);
  const int first = layers - shared;
  if (shared == 0) {
    return;
  }
  if (first < 1) {
    config.fail("num_kv_shared_layers",
                "is " + std::to_string(shared) + " of " + std::to_string(layers) + " layers");
  }
  for (int i = first; i < layers; ++i) {
    AttentionDescriptor& attention = decoder.layers[i].attention();
    int source = first - 1;
    while (source >= 0 &&
           (decoder.layers[source].attention().window > 0) != (attention.window > 0)) {
      --source;
    }
    if (source < 0) {
      config.fail("num_kv_shared_layers", "leaves no layer of each type with keys of its own");
    }
    attention.shares_kv_of = source;
    if (wide) {
      decoder.layers[i].mlp().hidden *= 2;
    }
  }
}

void read_layer_inputs(const ConfigReader& config, Descriptor& decoder,
                       const NormDescriptor& norm) {
  const int size = config.integer("hidden_size_per_layer_input", 256);
  const int vocabulary = config.integer("vocab_size_per_layer_input", decoder.vocabulary);
  if (size == 0) {
    return;
  }
  decoder.names.layer_input = {.embedding = "model.embed_tokens_per_layer",
                               .projection = "model.per_layer_model_projection",
                               .projection_norm = "model.per_layer_projection_norm",
                               .gate = "per_layer_input_gate",
                               .output = "per_layer_projection",
                               .output_norm = "post_per_layer_input_norm"};
  for (LayerDescriptor& layer : decoder.layers) {
    layer.layer_input =
        LayerInputDescriptor{.size = size,
                             .activation = layer.mlp().activation,
                             .norm = norm,
                             .vocabulary = vocabulary == decoder.vocabulary ? 0 : vocabulary};
  }
}

namespace {

void read_attention(const ConfigReader& config, Descriptor& decoder, const NormDescriptor& norm) {
  const RopeSettings local_rope = read_rope(config, "sliding_attention");
  RopeSettings full_rope = read_rope(config, "full_attention", 1e6);
  if (!config.contains("rope_parameters")) {
    full_rope.scaling = ProportionalRope{};
    full_rope.partial = 0.25;
  }
  set_normed_attention(decoder, norm, local_rope, full_rope);
  const bool keys_are_values = config.boolean("attention_k_eq_v", false);
  for (LayerDescriptor& layer : decoder.layers) {
    AttentionDescriptor& attention = layer.attention();
    attention.keys_are_values = keys_are_values && attention.window == 0;
  }
}

/// Pictures may be seen both ways, which concerns no text; text may not.
void read_direction(const ConfigReader& config) {
  constexpr const char* key = "use_bidirectional_attention";
  if (config.is_string(key) && config.string(key) == "vision") {
    return;
  }
  config.require_off(key);
}

/// Experts beside the MLP of each layer.
void read_experts(ConfigReader& config, Descriptor& decoder, const NormDescriptor& norm) {
  config.set_defaults({{"num_experts_per_tok", config.integer("top_k_experts")}});
  ExpertsDescriptor experts = softmax_experts(config, "moe_intermediate_size", "hidden_activation");
  experts.router.rule.normalize = true;
  experts.router.expert_scales = true;
  experts.layout = ExpertsDescriptor::Layout::stacked;
  for (LayerDescriptor& layer : decoder.layers) {
    layer.feed_forward =
        ParallelFeedForwardDescriptor{.mlp = layer.mlp(), .experts = experts, .norm = norm};
  }
  decoder.names.parallel_feed_forward = {.mlp_post_norm = "post_feedforward_layernorm_1",
                                         .experts_norm = "pre_feedforward_layernorm_2",
                                         .experts_post_norm = "post_feedforward_layernorm_2",
                                         .router_scale = "router.scale"};
  ExpertNames& names = decoder.names.experts;
  names.router = "router.proj";
  names.scales = "router.per_expert_scale";
  names.input = {"experts.gate_up_proj"};
  names.down = "experts.down_proj";
  names.suffix = "";
}

}  // namespace

// Gemma 4's text model: a vector for each token and layer, values normalized, keys shared among the
// last layers; experts beside each MLP in the larger sizes.
Descriptor read_gemma4(ConfigReader& config) {
  config.set_defaults({{"tie_word_embeddings", true},
                       {"head_dim", 256},
                       {"rms_norm_eps", 1e-6},
                       {"hidden_activation", "gelu_pytorch_tanh"}});
  read_direction(config);
  Descriptor decoder = dense_decoder(config);
  const NormDescriptor norm = rms_norm(config);
  set_pre_norms(decoder, norm);
  set_activation(decoder, read_activation(config, "hidden_activation"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  std::vector<bool> sliding = sliding_layers(config, full_interval);
  sliding.back() = false;  // whatever the file says
  set_windows(decoder, sliding, config.integer("sliding_window", 512));
  decoder.embedding_scale = std::sqrt(static_cast<float>(decoder.width));
  decoder.logit_softcap = static_cast<float>(config.number("final_logit_softcapping", 0));
  decoder.names.mlp_norm = "pre_feedforward_layernorm";
  decoder.names.output_scale = "layer_scalar";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention_post_norm = norm;
    layer.mlp_post_norm = norm;
    layer.output_scale = true;
  }
  read_layer_sizes(config, decoder);
  read_attention(config, decoder, norm);
  share_keys(config, decoder);
  read_layer_inputs(config, decoder, norm);
  if (config.boolean("enable_moe_block", false)) {
    read_experts(config, decoder, norm);
  }
  ignore_keys(config, {"num_experts", "moe_intermediate_size", "top_k_experts"});
  return decoder;
}

// Gemma 4 12B, which sees and hears by itself: neither vectors for each layer nor experts.
Descriptor read_gemma4_unified(ConfigReader& config) {
  config.set_defaults({{"hidden_size_per_layer_input", 0}, {"sliding_window", 1024}});
  return read_gemma4(config);
}

}  // namespace espalier::models
