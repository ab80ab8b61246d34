#include <algorithm>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

namespace espalier::models {

// Command R: one layer norm before both parts, which run in parallel.
Descriptor read_cohere(ConfigReader& config) {
  config.set_defaults({{"tie_word_embeddings", true}});
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, layer_norm(config, "layer_norm_eps"));
  decoder.names.mlp_norm = decoder.names.attention_norm;
  set_rope(decoder, read_rope(config), true);
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  decoder.logit_scale = static_cast<float>(config.number("logit_scale"));
  const bool normalizes = config.boolean("use_qk_norm", false);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.parallel = true;
    if (normalizes) {
      layer.attention().qk_norm = QkNormDescriptor{.norm = decoder.final_norm,
                                                   .weights = QkNormDescriptor::Weights::stacked};
    }
  }
  return decoder;
}

// Command R7B and A: sliding layers with RoPE, full ones without positions.
Descriptor read_cohere2(ConfigReader& config) {
  Descriptor decoder = read_cohere(config);
  const int pattern =
      config.integer("sliding_window_pattern", config.integer("_sliding_window_pattern", 4));
  set_windows(decoder, sliding_layers(config, pattern), config.integer("sliding_window"));
  for (LayerDescriptor& layer : decoder.layers) {
    if (layer.attention().window == 0) {
      layer.attention().rope.reset();
    }
  }
  return decoder;
}

namespace {

/// Norms without a mean, where the file gives an epsilon for such.
void use_rms_norms(const ConfigReader& config, Descriptor& decoder) {
  if (config.contains("rms_norm_eps")) {
    set_pre_norms(decoder, rms_norm(config));
  }
}

/// The experts' choice: a softmax over the chosen ones, or sigmoids, which may be divided by their
/// sum.
void read_router(const ConfigReader& config, layers::RouterRule& rule) {
  const std::string function = config.string("expert_selection_fn", "softmax");
  const bool normalizes = config.boolean("norm_topk_prob", true);
  if (function != "softmax" && function != "sigmoid") {
    config.fail("expert_selection_fn", "is '" + function + "', which is not supported");
  }
  const bool sigmoid = function == "sigmoid";
  rule.score = sigmoid ? layers::RouterRule::Score::sigmoid : layers::RouterRule::Score::softmax;
  rule.normalize = !sigmoid || normalizes;
}

/// Which layers slide, and which of them have no experts.
struct CohereLayers {
  std::vector<bool> sliding;
  std::vector<bool> sparse;
};

/// The first layers, which have no experts, may slide by a pattern of their own.
CohereLayers cohere_layers(const ConfigReader& config, std::size_t count, int dense_pattern) {
  const auto dense = std::min<std::size_t>(config.integer("first_k_dense_replace", 0), count);
  CohereLayers layers{.sliding = every_nth_full(dense, dense_pattern),
                      .sparse = sparse_layers(config, count, 0)};
  const std::vector<bool> rest =
      every_nth_full(count - dense, config.integer("sliding_window_pattern", 4));
  layers.sliding.insert(layers.sliding.end(), rest.begin(), rest.end());
  if (config.contains("layer_types")) {
    layers.sliding = sliding_layers(config, 0);
  }
  return layers;
}

}  // namespace

// Command with experts: Command A's layers, the first of which may be dense, and a shared part that
// may be averaged with the others.
Descriptor read_cohere2_moe(ConfigReader& config) {
  config.set_defaults({{"head_dim", 128}, {"layer_norm_eps", 1e-5}, {"logit_scale", 0.0625}});
  Descriptor decoder = read_cohere(config);
  use_rms_norms(config, decoder);
  const int dense_pattern = config.integer("prefix_dense_sliding_window_pattern", 1);
  const CohereLayers kinds = cohere_layers(config, decoder.layers.size(), dense_pattern);
  set_windows(decoder, kinds.sliding, config.integer("sliding_window", 4096));
  ExpertsDescriptor experts = softmax_experts(config, "intermediate_size");
  read_router(config, experts.router.rule);
  const std::string combination = config.string("shared_expert_combination_strategy", "average");
  if (combination != "average" && combination != "sum") {
    config.fail("shared_expert_combination_strategy",
                "is '" + combination + "', which is not supported");
  }
  if (const int shared = config.integer("num_shared_experts", 0); shared > 0) {
    experts.shared =
        MlpDescriptor{.hidden = config.product("num_shared_experts", shared, experts.hidden),
                      .activation = experts.activation};
  }
  decoder.names.experts = expert_names("mlp");
  name_shared_expert(decoder.names.experts, "mlp.shared_experts");
  const int dense_hidden = config.integer("prefix_dense_intermediate_size", experts.hidden);
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    LayerDescriptor& layer = decoder.layers[i];
    const bool rotates = kinds.sliding[i] || (!kinds.sparse[i] && dense_pattern == 1);
    if (!rotates) {
      layer.attention().rope.reset();
    }
    if (!kinds.sparse[i]) {
      layer.mlp().hidden = dense_hidden;
      continue;
    }
    layer.feed_forward = experts;
    layer.mlp_scale = experts.shared && combination == "average" ? 0.5F : 1.0F;
  }
  return decoder;
}

}  // namespace espalier::models
