#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// Nemotron 3 and 4, Minitron: layer norms stored less one, a plain feed-forward part.
Descriptor read_nemotron(ConfigReader& config) {
  config.set_defaults({{"partial_rotary_factor", 0.5}, {"hidden_act", "relu2"}});
  Descriptor decoder = dense_decoder(config);
  NormDescriptor norm = layer_norm(config, "norm_eps");
  norm.bias = true;
  norm.weight_offset = 1;
  set_pre_norms(decoder, norm);
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_plain_mlp(decoder);
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  set_mlp_bias(decoder, config.boolean("mlp_bias", false));
  return decoder;
}

// Jais 2: plain layer norms, biases everywhere.
Descriptor read_jais2(ConfigReader& config) {
  config.set_defaults({{"attention_bias", true}, {"mlp_bias", true}, {"hidden_act", "relu2"}});
  Descriptor decoder = dense_decoder(config);
  NormDescriptor norm = layer_norm(config, "layer_norm_eps");
  norm.bias = true;
  set_pre_norms(decoder, norm);
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_plain_mlp(decoder);
  set_attention_bias(decoder, config.boolean("attention_bias"));
  set_mlp_bias(decoder, config.boolean("mlp_bias"));
  return decoder;
}

}  // namespace espalier::models
