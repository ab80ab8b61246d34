#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {
namespace {

/// Llama with four multipliers.
struct Multipliers {
  double embedding;
  double attention;
  double residual;
  double logits_divisor;
};

void set_multipliers(Descriptor& decoder, const Multipliers& multipliers) {
  decoder.embedding_scale = static_cast<float>(multipliers.embedding);
  decoder.logit_scale = static_cast<float>(1 / multipliers.logits_divisor);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().scale = static_cast<float>(multipliers.attention);
    layer.residual_scale = static_cast<float>(multipliers.residual);
  }
}

}  // namespace

Descriptor read_granite(ConfigReader& config) {
  Descriptor decoder = read_llama(config);
  set_multipliers(decoder, {.embedding = config.number("embedding_multiplier", 1),
                            .attention = config.number("attention_multiplier", 1),
                            .residual = config.number("residual_multiplier", 1),
                            .logits_divisor = config.number("logits_scaling", 1)});
  return decoder;
}

Descriptor read_granite(const GgufReader& file) {
  Descriptor decoder = read_llama(file);
  const double attention_scale = decoder.layers.front().attention().scale;
  set_multipliers(decoder, {.embedding = file.number("embedding_scale", 1),
                            .attention = file.number("attention.scale", attention_scale),
                            .residual = file.number("residual_scale", 1),
                            .logits_divisor = file.number("logit_scale", 1)});
  return decoder;
}

}  // namespace espalier::models
