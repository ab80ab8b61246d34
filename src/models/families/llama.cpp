#include "models/families/llama.h"

#include <variant>

#include "models/families/dense.h"

namespace espalier::models {

Descriptor read_llama(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config));
  const bool attention_bias = config.boolean("attention_bias", false);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention.qkv_bias = attention_bias;
    layer.attention.output_bias = attention_bias;
    auto& mlp = std::get<GatedMlpDescriptor>(layer.mlp);
    mlp.activation = read_activation(config, "hidden_act");
    mlp.bias = config.boolean("mlp_bias", false);
  }
  return decoder;
}

Descriptor read_llama(const GgufReader& file) {
  file.require_off("expert_count");
  file.require_off("expert_used_count");
  Descriptor decoder = dense_decoder(file);
  set_pre_norms(decoder, rms_norm(file));
  // The rows of q and k were reordered when the file was made: pairs lie side by side.
  set_rope(decoder, read_rope(file, decoder.layers.front().attention.head_dim), true);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention.qkv_bias = file.has_tensor("blk.0.attn_q.bias");
    layer.attention.output_bias = file.has_tensor("blk.0.attn_output.bias");
    std::get<GatedMlpDescriptor>(layer.mlp).bias = file.has_tensor("blk.0.ffn_gate.bias");
  }
  return decoder;
}

}  // namespace espalier::models
