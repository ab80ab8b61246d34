#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
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

/// Windows in all layers but each fourth, attention sinks, and a RoPE base for each layer, of which
/// zero means no positions.
void set_windows_and_sinks(const ConfigReader& config, Descriptor& decoder) {
  set_windows(decoder,
              config.contains("layer_types") ? sliding_layers(config, 0)
                                             : all_but_each_first(decoder.layers.size(), 4),
              config.integer("sliding_window", 128));
  decoder.names.sinks = "self_attn.sinks";
  const std::vector<double> bases = config.numbers("layer_rope_theta");
  if (!bases.empty() && bases.size() != decoder.layers.size()) {
    config.fail("layer_rope_theta", "has another number of entries than there are layers");
  }
  RopeSettings rope = read_rope(config);
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    AttentionDescriptor& attention = decoder.layers[i].attention();
    attention.sinks = true;
    if (bases.empty()) {
      continue;
    }
    rope.theta = bases[i];
    attention.rope.reset();
    if (bases[i] != 0) {
      attention.rope = make_rope(rope, attention.head_dim);
    }
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

// Granite 3 MoE: the experts' matrices stacked.
Descriptor read_granitemoe(ConfigReader& config) {
  Descriptor decoder = read_granite(config);
  ExpertsDescriptor experts = softmax_experts(config, "intermediate_size");
  experts.router.rule.normalize = true;
  experts.layout = ExpertsDescriptor::Layout::stacked;
  decoder.names.experts.router = "block_sparse_moe.router.layer";
  decoder.names.experts.input = {"block_sparse_moe.input_linear"};
  decoder.names.experts.down = "block_sparse_moe.output_linear";
  if (const int shared = config.integer("shared_intermediate_size", 0); shared > 0) {
    experts.shared = MlpDescriptor{.hidden = shared, .activation = experts.activation};
    decoder.names.experts.shared_input = {"shared_mlp.input_linear"};
    decoder.names.experts.shared_down = "shared_mlp.output_linear";
  }
  set_experts(decoder, experts);
  return decoder;
}

Descriptor read_granite_swa(ConfigReader& config) {
  config.set_defaults({{"tie_word_embeddings", true}});
  Descriptor decoder = read_granite(config);
  set_windows_and_sinks(config, decoder);
  return decoder;
}

Descriptor read_granitemoe_swa(ConfigReader& config) {
  Descriptor decoder = read_granitemoe(config);
  ExpertNames& names = decoder.names.experts;
  names.router = "block_sparse_moe.router";
  names.input = {"block_sparse_moe.experts.gate_up_proj"};
  names.down = "block_sparse_moe.experts.down_proj";
  names.suffix = "";
  set_windows_and_sinks(config, decoder);
  return decoder;
}

// HyperCLOVA X: Granite with norms behind both parts, and logits multiplied instead of divided.
Descriptor read_hyperclovax(ConfigReader& config) {
  Descriptor decoder = read_llama(config);
  const double scale = decoder.layers.front().attention().scale;
  set_multipliers(decoder, {.embedding = config.number("embedding_multiplier", 1),
                            .attention = config.number("attention_multiplier", scale),
                            .residual = config.number("residual_multiplier", 1),
                            .logits_divisor = 1 / config.number("logits_scaling", 1)});
  if (config.boolean("use_post_norm", true)) {
    decoder.names.attention_post_norm = "post_norm1";
    decoder.names.mlp_post_norm = "post_norm2";
    for (LayerDescriptor& layer : decoder.layers) {
      layer.attention_post_norm = decoder.final_norm;
      layer.mlp_post_norm = decoder.final_norm;
    }
  }
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
