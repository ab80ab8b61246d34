#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// Llama 1 to 3.3 and everything with the same layout: SmolLM 1 and 2, TinyLlama, Yi, …
Descriptor read_llama(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  set_mlp_bias(decoder, config.boolean("mlp_bias", false));
  return decoder;
}

// GGUF's "llama" holds Mistral too.
Descriptor read_llama(const GgufReader& file) {
  file.require_off("expert_count");
  file.require_off("expert_used_count");
  Descriptor decoder = dense_decoder(file);
  set_pre_norms(decoder, rms_norm(file));
  // The rows of q and k were reordered when the file was made: pairs lie side by side.
  set_rope(decoder, read_rope(file, decoder.layers.front().attention().head_dim), true);
  set_mlp_bias(decoder, file.has_tensor("blk.0.ffn_gate.bias"));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_bias = file.has_tensor("blk.0.attn_q.bias");
    layer.attention().output_bias = file.has_tensor("blk.0.attn_output.bias");
  }
  return decoder;
}

}  // namespace espalier::models
