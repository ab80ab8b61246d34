#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// NanoChat: norms without weights, of q and k behind RoPE, which turns the other way.
Descriptor read_nanochat(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  NormDescriptor norm = rms_norm(config);
  norm.weight = false;
  set_pre_norms(decoder, norm);
  decoder.embedding_norm = norm;
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  set_plain_mlp(decoder);
  decoder.names.mlp_input = {"mlp.fc1"};
  decoder.names.mlp_down = "mlp.fc2";
  decoder.logit_softcap = static_cast<float>(config.number("final_logit_softcapping", 15));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qk_norm = QkNormDescriptor{.norm = norm, .after_rope = true};
    for (float& frequency : layer.attention().rope->inv_freq) {
      frequency = -frequency;
    }
  }
  return decoder;
}

}  // namespace espalier::models
