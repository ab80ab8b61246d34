#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// ERNIE 4.5, the dense sizes: Llama with interleaved RoPE.
Descriptor read_ernie4_5(ConfigReader& config) {
  config.set_defaults({{"tie_word_embeddings", true}});
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config, {}, 500000), true);
  set_activation(decoder, read_activation(config, "hidden_act"));
  const bool bias = config.boolean("use_bias", false);
  set_attention_bias(decoder, bias);
  set_mlp_bias(decoder, bias);
  return decoder;
}

}  // namespace espalier::models
