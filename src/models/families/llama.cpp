#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
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

// GGUF's "llama" holds Mistral and Mixtral too.
Descriptor read_llama(const GgufReader& file) {
  Descriptor decoder = dense_decoder(file);
  set_pre_norms(decoder, rms_norm(file));
  // The rows of q and k were reordered when the file was made: pairs lie side by side.
  set_rope(decoder, read_rope(file, decoder.layers.front().attention().head_dim), true);
  set_mlp_bias(decoder, file.has_tensor("blk.0.ffn_gate.bias"));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_bias = file.has_tensor("blk.0.attn_q.bias");
    layer.attention().output_bias = file.has_tensor("blk.0.attn_output.bias");
  }
  if (file.integer("expert_count", 0) > 0) {
    read_experts(file, decoder, true);
  } else {
    file.require_off("expert_used_count");
  }
  return decoder;
}

// CWM: Llama whose layers slide but for the first of each four.
Descriptor read_cwm(ConfigReader& config) {
  config.set_defaults({{"head_dim", 128}, {"sliding_window", 8192}});
  Descriptor decoder = read_llama(config);
  set_windows(decoder,
              config.contains("layer_types") ? sliding_layers(config, 0)
                                             : all_but_each_first(decoder.layers.size(), 4),
              config.integer("sliding_window"));
  return decoder;
}

}  // namespace espalier::models
