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

// Mellum 2: Qwen 3 MoE with sliding layers that have a RoPE of their own.
Descriptor read_mellum(ConfigReader& config) {
  config.set_defaults({{"head_dim", 128}, {"sliding_window", 1024}});
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  set_qk_norm(decoder);
  set_windows(decoder, sliding_layers(config, 0), config.integer("sliding_window"));
  const RopeSettings full = read_rope(config, "full_attention", 500000);
  const RopeSettings local = read_rope(config, "sliding_attention");
  for (LayerDescriptor& layer : decoder.layers) {
    AttentionDescriptor& attention = layer.attention();
    attention.rope = make_rope(attention.window > 0 ? local : full, attention.head_dim);
  }
  ExpertsDescriptor experts = softmax_experts(config, "moe_intermediate_size");
  experts.router.rule.normalize = config.boolean("norm_topk_prob", true);
  decoder.names.experts = expert_names("mlp");
  set_experts(decoder, experts, sparse_layers(config, decoder.layers.size(), 0));
  return decoder;
}

Descriptor read_qwen3_moe(const GgufReader& file) {
  Descriptor decoder = read_qwen3(file);
  read_experts(file, decoder, true);
  return decoder;
}

}  // namespace espalier::models
