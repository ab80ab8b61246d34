#include <algorithm>
#include <optional>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// Mistral 7B, Nemo, Small; Ministral: Llama without biases, its windows in all or some layers.
Descriptor read_mistral(ConfigReader& config) {
  config.require_off("attention_bias");
  config.require_off("mlp_bias");
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  std::vector<bool> sliding(decoder.layers.size(), config.contains("sliding_window"));
  if (config.contains("layer_types")) {
    sliding = sliding_layers(config, 0);
  }
  set_windows(decoder, sliding, config.integer("sliding_window", 0));
  return decoder;
}

// Ministral 3: queries grow with the logarithm of the position beyond the trained context.
Descriptor read_ministral3(ConfigReader& config) {
  Descriptor decoder = read_mistral(config);
  if (const std::optional<ConfigReader> rope = config.object("rope_parameters")) {
    rope->ignore("max_position_embeddings");
    const double beta = rope->number("llama_4_scaling_beta", 0);
    const int trained = rope->integer("original_max_position_embeddings", decoder.context);
    for (LayerDescriptor& layer : decoder.layers) {
      if (beta != 0) {
        layer.attention().query_growth = QueryGrowthDescriptor{
            .beta = static_cast<float>(beta), .interval = static_cast<float>(trained)};
      }
    }
  }
  return decoder;
}

}  // namespace espalier::models
