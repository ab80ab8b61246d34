#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// StableLM 2 and 3B: layer norms, a quarter of each head rotated, perhaps parallel parts behind one
// norm.
Descriptor read_stablelm(ConfigReader& config) {
  config.set_defaults({{"partial_rotary_factor", 0.25}});
  config.require_off("qk_layernorm");
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
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_bias = config.boolean("use_qkv_bias", false);
    layer.parallel = parallel;
  }
  return decoder;
}

}  // namespace espalier::models
