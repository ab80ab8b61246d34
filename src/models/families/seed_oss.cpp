#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// Seed-OSS: Llama with biases for q, k and v alone.
Descriptor read_seed_oss(ConfigReader& config) {
  config.set_defaults({{"attention_bias", true}});
  Descriptor decoder = read_llama(config);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().output_bias = config.boolean("attention_out_bias", false);
  }
  return decoder;
}

}  // namespace espalier::models
