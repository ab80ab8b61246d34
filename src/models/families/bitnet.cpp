#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// BitNet b1.58, its weights unpacked: Llama with norms before the output matrices of both parts.
Descriptor read_bitnet(ConfigReader& config) {
  config.set_defaults({{"hidden_act", "relu2"}});
  Descriptor decoder = read_llama(config);
  decoder.names.output_norm = "self_attn.attn_sub_norm";
  decoder.names.mlp_hidden_norm = "mlp.ffn_sub_norm";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().output_norm = decoder.final_norm;
    layer.mlp().hidden_norm = decoder.final_norm;
  }
  return decoder;
}

}  // namespace espalier::models
