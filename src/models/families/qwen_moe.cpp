#include <algorithm>
#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

namespace espalier::models {
namespace {

/// Experts in each `decoder_sparse_step`-th layer, but in those of `mlp_only_layers`.
void read_experts(const ConfigReader& config, Descriptor& decoder, ExpertsDescriptor& experts) {
  experts.router.rule.normalize = config.boolean("norm_topk_prob", false);
  const int step = config.integer("decoder_sparse_step", 1);
  const std::vector<int> dense = config.integers("mlp_only_layers");
  std::vector<bool> sparse(decoder.layers.size());
  for (int i = 0; i < static_cast<int>(sparse.size()); ++i) {
    sparse[i] = step > 0 && (i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end();
  }
  set_experts(decoder, experts, sparse);
}

}  // namespace

// Qwen 1.5 and 2 MoE: Qwen 2 with a shared expert behind a gate.
Descriptor read_qwen2_moe(ConfigReader& config) {
  Descriptor decoder = read_qwen2(config);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_bias = config.boolean("qkv_bias", true);
  }
  ExpertsDescriptor experts = softmax_experts(config, "moe_intermediate_size");
  experts.shared = MlpDescriptor{.hidden = config.integer("shared_expert_intermediate_size"),
                                 .activation = experts.activation};
  experts.shared_gate = true;
  decoder.names.experts = expert_names("mlp");
  name_shared_expert(decoder.names.experts, "mlp.shared_expert");
  decoder.names.experts.shared_gate = "mlp.shared_expert_gate";
  read_experts(config, decoder, experts);
  return decoder;
}

Descriptor read_qwen2_moe(const GgufReader& file) {
  Descriptor decoder = read_qwen2(file);
  read_experts(file, decoder, false);
  return decoder;
}

// Qwen 3 MoE.
Descriptor read_qwen3_moe(ConfigReader& config) {
  Descriptor decoder = read_qwen3(config);
  if (!config.contains("layer_types")) {
    // Here windows are in all layers, where there are any.
    const bool slides = config.boolean("use_sliding_window", false);
    set_windows(decoder, std::vector<bool>(decoder.layers.size(), slides),
                config.integer("sliding_window", 0));
  }
  ExpertsDescriptor experts = softmax_experts(config, "moe_intermediate_size");
  decoder.names.experts = expert_names("mlp");
  read_experts(config, decoder, experts);
  return decoder;
}

Descriptor read_qwen3_moe(const GgufReader& file) {
  Descriptor decoder = read_qwen3(file);
  read_experts(file, decoder, true);
  return decoder;
}

}  // namespace espalier::models
