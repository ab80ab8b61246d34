#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// Phi-3, 3.5 and 4: Llama with fused matrices, part of each head rotated.
Descriptor read_phi3(ConfigReader& config) {
  Descriptor decoder = read_mistral(config);
  decoder.names.qkv = {"self_attn.qkv_proj"};
  decoder.names.mlp_input = {"mlp.gate_up_proj"};
  config.ignore("original_max_position_embeddings");
  return decoder;
}

}  // namespace espalier::models
