#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// Apertus: Llama with q and k norms and a plain feed-forward part whose function is learned.
Descriptor read_apertus(ConfigReader& config) {
  config.set_defaults({{"hidden_act", "xielu"}});
  config.require_off("post_norm");
  for (const char* key : {"qk_norm", "mlp_bias"}) {
    config.ignore(key);
  }
  Descriptor decoder = read_llama(config);
  set_plain_mlp(decoder);
  decoder.names.mlp_activation = "mlp.act_fn";
  decoder.names.attention_norm = "attention_layernorm";
  decoder.names.mlp_norm = "feedforward_layernorm";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qk_norm = QkNormDescriptor{.norm = decoder.final_norm};
  }
  return decoder;
}

}  // namespace espalier::models
