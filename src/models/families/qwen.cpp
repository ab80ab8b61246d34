#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {
namespace {

/// Which layers slide: from `max_window_layers` on, where windows are used at all.
void read_windows(const ConfigReader& config, Descriptor& decoder) {
  const bool slides = config.boolean("use_sliding_window", false);
  const int first_sliding = config.integer("max_window_layers", 28);
  std::vector<bool> sliding(decoder.layers.size());
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    sliding[i] = slides && i >= static_cast<std::size_t>(first_sliding);
  }
  if (config.contains("layer_types")) {
    sliding = sliding_layers(config, 0);
  }
  set_windows(decoder, sliding, config.integer("sliding_window", 0));
}

}  // namespace

// Qwen 2 and 2.5: Llama with biases for q, k and v.
Descriptor read_qwen2(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  read_windows(config, decoder);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_bias = true;
  }
  return decoder;
}

Descriptor read_qwen2(const GgufReader& file) {
  Descriptor decoder = dense_decoder(file);
  set_pre_norms(decoder, rms_norm(file));
  set_rope(decoder, read_rope(file, decoder.layers.front().attention().head_dim));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_bias = file.has_tensor("blk.0.attn_q.bias");
  }
  return decoder;
}

// Qwen 3, the dense sizes: q and k norms instead of the biases.
Descriptor read_qwen3(ConfigReader& config) {
  config.set_defaults({{"head_dim", 128}});
  Descriptor decoder = read_qwen2(config);
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  set_qk_norm(decoder);
  return decoder;
}

Descriptor read_qwen3(const GgufReader& file) {
  Descriptor decoder = read_qwen2(file);
  set_qk_norm(decoder);
  return decoder;
}

}  // namespace espalier::models
