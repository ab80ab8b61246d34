#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

namespace espalier::models {

// ERNIE 4.5, the dense sizes: Llama with interleaved RoPE.
Descriptor read_ernie4_5(ConfigReader& config) {
  config.set_defaults({{"tie_word_embeddings", true}});
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config, {}, 500000), true);
  set_activation(decoder, read_activation(config, "hidden_act"));
  const bool bias = config.boolean("use_bias", false);
  set_attention_bias(decoder, bias);
  set_mlp_bias(decoder, bias);
  return decoder;
}

// ERNIE 4.5 MoE: softmax scores with a correction, shared experts.
Descriptor read_ernie4_5_moe(ConfigReader& config) {
  config.set_defaults({{"num_experts", config.integer("moe_num_experts", 64)},
                       {"num_experts_per_tok", config.integer("moe_k", 6)}});
  Descriptor decoder = read_ernie4_5(config);
  ExpertsDescriptor experts = softmax_experts(config, "moe_intermediate_size");
  experts.router.rule.normalize = true;
  experts.router.rule.smallest_sum = static_cast<float>(config.number("moe_norm_min", 1e-12));
  experts.router.correction_bias = true;
  decoder.names.experts = expert_names("mlp");
  decoder.names.experts.correction_bias = "mlp.moe_statics.e_score_correction_bias";
  if (const int shared = config.integer("moe_num_shared_experts", 2); shared > 0) {
    experts.shared =
        MlpDescriptor{.hidden = config.product("moe_num_shared_experts", shared, experts.hidden),
                      .activation = experts.activation,
                      .bias = config.boolean("use_bias", false)};
    name_shared_expert(decoder.names.experts, "mlp.shared_experts");
  }
  decoder.head_bias = config.boolean("use_bias", false);  // the experts alone have none
  const int layers = static_cast<int>(decoder.layers.size());
  const int last = config.signed_integer("moe_layer_end_index", -1);
  const int end = last < 0 ? layers - 1 : last;
  const int start = config.integer("moe_layer_start_index", 1);
  const int interval = config.integer("moe_layer_interval", 1);
  std::vector<bool> sparse(decoder.layers.size());
  for (int i = 0; i < layers; ++i) {
    sparse[i] = interval > 0 && (i + 1) % interval == 0 && i >= start && i <= end;
  }
  set_experts(decoder, experts, sparse);
  return decoder;
}

}  // namespace espalier::models
