#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

namespace espalier::models {
namespace {

constexpr int no_rope_interval = 4;

/// Which layers rotate: the list has a 1 for them, despite its name.
std::vector<bool> rotating_layers(const ConfigReader& config, std::size_t layers) {
  const std::vector<int> list = config.integers("no_rope_layers");
  const int interval = config.integer("no_rope_layer_interval", no_rope_interval);
  if (!list.empty() && list.size() != layers) {
    config.fail("no_rope_layers", "has another number of entries than there are layers");
  }
  std::vector<bool> rotating(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    rotating[i] = list.empty() ? interval < 1 || (i + 1) % static_cast<std::size_t>(interval) != 0
                               : list[i] != 0;
  }
  return rotating;
}

std::vector<bool> expert_layers(const ConfigReader& config, std::size_t layers) {
  const int step = config.integer("interleave_moe_layer_step", 1);
  std::vector<bool> sparse(layers);
  if (!config.contains("moe_layers")) {
    for (std::size_t i = 0; i < layers; ++i) {
      sparse[i] = step > 0 && (i + 1) % static_cast<std::size_t>(step) == 0;
    }
    return sparse;
  }
  for (const int layer : config.integers("moe_layers")) {
    if (layer < 0 || layer >= static_cast<int>(layers)) {
      config.fail("moe_layers", "names layer " + std::to_string(layer));
    }
    sparse[layer] = true;
  }
  return sparse;
}

/// Layers that rotate attend within chunks; the others in full, with queries that grow with the
/// position.
void read_attention(const ConfigReader& config, Descriptor& decoder) {
  const std::vector<bool> rotating = rotating_layers(config, decoder.layers.size());
  const std::vector<std::string> types = config.strings("layer_types");
  const int chunk = config.integer("attention_chunk_size", 8192);
  const bool grows = config.boolean("attn_temperature_tuning", true);
  const QueryGrowthDescriptor growth{
      .beta = static_cast<float>(config.number("attn_scale", 0.1)),
      .interval = static_cast<float>(config.number("floor_scale", 8192)),
      .offset = 1};
  const bool normalizes = config.boolean("use_qk_norm", true);
  if (!types.empty() && types.size() != decoder.layers.size()) {
    config.fail("layer_types", "has another number of entries than there are layers");
  }
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    AttentionDescriptor& attention = decoder.layers[i].attention();
    const bool chunked = types.empty() ? rotating[i] : types[i] == "chunked_attention";
    if (!types.empty() && !chunked && types[i] != "full_attention") {
      config.fail("layer_types", "names '" + types[i] + "', which is not supported");
    }
    attention.chunk = chunked ? chunk : 0;
    if (!rotating[i]) {
      attention.rope.reset();
    }
    if (normalizes && rotating[i]) {
      attention.qk_norm = QkNormDescriptor{.norm = {.eps = decoder.final_norm.eps, .weight = false},
                                           .after_rope = true};
    }
    if (grows && !rotating[i]) {
      attention.query_growth = growth;
    }
  }
}

}  // namespace

// Llama 4's text model: chunked attention, one expert a token beside a shared one.
Descriptor read_llama4(ConfigReader& config) {
  config.set_defaults({{"head_dim", 128}, {"num_experts_per_tok", 1}});
  config.ignore("for_llm_compressor");
  Descriptor decoder = read_llama(config);
  set_rope(decoder, read_rope(config, {}, 500000), true);
  read_attention(config, decoder);
  decoder.names.mlp_input = {"feed_forward.gate_proj", "feed_forward.up_proj"};
  decoder.names.mlp_down = "feed_forward.down_proj";
  const int dense_hidden = config.integer("intermediate_size_mlp", 16384);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.mlp().hidden = dense_hidden;
  }
  ExpertsDescriptor experts = softmax_experts(config, "intermediate_size");
  experts.router.rule.score = layers::RouterRule::Score::sigmoid;
  experts.weights_scale_input = true;
  experts.layout = ExpertsDescriptor::Layout::transposed;
  experts.shared = MlpDescriptor{.hidden = experts.hidden, .activation = experts.activation};
  decoder.names.experts.router = "feed_forward.router";
  decoder.names.experts.input = {"feed_forward.experts.gate_up_proj"};
  decoder.names.experts.down = "feed_forward.experts.down_proj";
  decoder.names.experts.suffix = "";
  name_shared_expert(decoder.names.experts, "feed_forward.shared_expert");
  set_experts(decoder, experts, expert_layers(config, decoder.layers.size()));
  return decoder;
}

}  // namespace espalier::models
