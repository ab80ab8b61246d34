#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// GLM-4 (9B of 2024) and GLM-Edge: half of each head rotated in interleaved pairs.
Descriptor read_glm(ConfigReader& config) {
  config.set_defaults({{"partial_rotary_factor", 0.5}});
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config), true);
  set_activation(decoder, read_activation(config, "hidden_act"));
  decoder.names.mlp_input = {"mlp.gate_up_proj"};
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_bias = config.boolean("attention_bias", false);
  }
  return decoder;
}

// GLM-4-0414: the same with norms after both parts.
Descriptor read_glm4(ConfigReader& config) {
  Descriptor decoder = read_glm(config);
  decoder.names.attention_post_norm = "post_self_attn_layernorm";
  decoder.names.mlp_post_norm = "post_mlp_layernorm";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention_post_norm = rms_norm(config);
    layer.mlp_post_norm = rms_norm(config);
  }
  return decoder;
}

}  // namespace espalier::models
