#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// StarCoder 2: layer norms, a plain feed-forward part, biases everywhere.
Descriptor read_starcoder2(ConfigReader& config) {
  config.set_defaults({{"tie_word_embeddings", true}, {"use_bias", true}});
  Descriptor decoder = dense_decoder(config);
  NormDescriptor norm = layer_norm(config, "norm_epsilon");
  norm.bias = true;
  set_pre_norms(decoder, norm);
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_plain_mlp(decoder);
  decoder.names.mlp_input = {"mlp.c_fc"};
  decoder.names.mlp_down = "mlp.c_proj";
  const bool bias = config.boolean("use_bias");
  set_attention_bias(decoder, bias);
  set_mlp_bias(decoder, bias);
  set_windows(decoder, std::vector<bool>(decoder.layers.size(), config.contains("sliding_window")),
              config.integer("sliding_window", 0));
  return decoder;
}

}  // namespace espalier::models
