#include "models/families/dense.h"
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

}  // namespace espalier::models
