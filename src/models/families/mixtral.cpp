#include <algorithm>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

namespace espalier::models {

// Mixtral: Mistral with a mixture of experts in every layer.
Descriptor read_mixtral(ConfigReader& config) {
  config.set_defaults({{"num_experts_per_tok", 2}, {"hidden_act", "silu"}});
  Descriptor decoder = read_mistral(config);
  ExpertsDescriptor experts = softmax_experts(config, "intermediate_size");
  experts.router.rule.normalize = true;
  decoder.names.experts = expert_names("block_sparse_moe", "w1", "w3", "w2");
  set_experts(decoder, experts);
  return decoder;
}

// Phi-3.5-MoE: layer norms, and a router that chooses twice.
Descriptor read_phimoe(ConfigReader& config) {
  config.set_defaults({{"num_experts_per_tok", 2}, {"hidden_act", "silu"}});
  Descriptor decoder = dense_decoder(config);
  NormDescriptor norm = layer_norm(config, "rms_norm_eps");
  norm.bias = true;
  set_pre_norms(decoder, norm);
  RopeSettings rope = read_rope(config);
  rope.partial = 1;  // whole heads, whatever the file says
  set_rope(decoder, rope);
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  decoder.head_bias = config.boolean("lm_head_bias", false);
  const bool slides = config.contains("sliding_window");
  set_windows(decoder, std::vector<bool>(decoder.layers.size(), slides),
              config.integer("sliding_window", 0));
  ExpertsDescriptor experts = softmax_experts(config, "intermediate_size");
  experts.router.rule.score = layers::RouterRule::Score::sparse_mixer;
  experts.router.rule.chosen = 2;  // whatever the file says
  experts.router.rule.tolerance = static_cast<float>(config.number("router_jitter_noise", 0.01));
  decoder.names.experts = expert_names("block_sparse_moe", "w1", "w3", "w2");
  set_experts(decoder, experts);
  return decoder;
}

// MiniMax M2: q and k norms over all heads together, sigmoid scores with a correction.
Descriptor read_minimax_m2(ConfigReader& config) {
  config.set_defaults({{"head_dim", 128}, {"hidden_act", "silu"}});
  if (config.contains("rotary_dim")) {
    config.set_defaults({{"partial_rotary_factor",
                          config.number("rotary_dim") / std::max(1, config.integer("head_dim"))}});
  }
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config, {}, 5000000));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qk_norm =
        QkNormDescriptor{.scope = QkNormDescriptor::Scope::projection, .norm = decoder.final_norm};
  }
  ExpertsDescriptor experts = softmax_experts(config, "intermediate_size");
  experts.router.rule.score = layers::RouterRule::Score::sigmoid;
  experts.router.rule.normalize = true;
  experts.router.correction_bias = true;
  decoder.names.experts = expert_names("block_sparse_moe", "w1", "w3", "w2");
  decoder.names.experts.correction_bias = "block_sparse_moe.e_score_correction_bias";
  set_experts(decoder, experts);
  return decoder;
}

}  // namespace espalier::models
