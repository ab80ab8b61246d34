#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// StableLM 2 and 3B: layer norms, a quarter of each head rotated, perhaps parallel parts behind one
// norm.
Descriptor read_stablelm(ConfigReader& config) {
  config.set_defaults({{"partial_rotary_factor", 0.25}});
  Descriptor decoder = dense_decoder(config);
  NormDescriptor norm = layer_norm(config, "layer_norm_eps");
  norm.bias = true;
  set_pre_norms(decoder, norm);
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  const bool parallel = config.boolean("use_parallel_residual", false);
  if (parallel) {
    decoder.names.mlp_norm = decoder.names.attention_norm;
  }
  const bool normalizes = config.boolean("qk_layernorm", false);
  NormDescriptor head_norm = norm;
  head_norm.bias = false;
  decoder.names.q_norm = "self_attn.q_layernorm";
  decoder.names.k_norm = "self_attn.k_layernorm";
  for (LayerDescriptor& layer : decoder.layers) {
    if (normalizes) {
      layer.attention().qk_norm =
          QkNormDescriptor{.norm = head_norm, .weights = QkNormDescriptor::Weights::listed};
    }
    layer.attention().qkv_bias = config.boolean("use_qkv_bias", false);
    layer.parallel = parallel;
  }
  return decoder;
}

}  // namespace espalier::models
