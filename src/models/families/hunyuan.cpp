#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

namespace espalier::models {

// HunYuan 1, the dense sizes: q and k norms behind RoPE.
Descriptor read_hunyuan_v1_dense(ConfigReader& config) {
  Descriptor decoder = read_llama(config);
  decoder.names.q_norm = "self_attn.query_layernorm";
  decoder.names.k_norm = "self_attn.key_layernorm";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qk_norm = QkNormDescriptor{.norm = decoder.final_norm, .after_rope = true};
  }
  return decoder;
}

// HunYuan 1 MoE: a shared part beside the experts; their numbers may differ from layer to layer.
Descriptor read_hunyuan_v1_moe(ConfigReader& config) {
  Descriptor decoder = read_hunyuan_v1_dense(config);
  ExpertsDescriptor experts{.router = {.rule = {.experts = 1, .chosen = 1, .normalize = true}},
                            .hidden = config.integer("intermediate_size"),
                            .activation = read_activation(config, "hidden_act")};
  experts.shared = decoder.layers.front().mlp();
  decoder.names.experts = expert_names("mlp");
  decoder.names.experts.router = "mlp.gate.wg";
  name_shared_expert(decoder.names.experts, "mlp.shared_mlp");
  const std::vector<int> counts = config.integers("num_experts");
  const std::vector<int> chosen = config.integers("moe_topk");
  for (const auto& [key, list] :
       {std::pair{"num_experts", counts}, std::pair{"moe_topk", chosen}}) {
    if (list.size() != 1 && list.size() != decoder.layers.size()) {
      config.fail(key, "has another number of entries than there are layers");
    }
  }
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    layers::RouterRule& rule = experts.router.rule;
    rule.experts = counts[counts.size() == 1 ? 0 : i];
    rule.chosen = chosen[chosen.size() == 1 ? 0 : i];
    if (rule.chosen < 1 || rule.chosen > rule.experts) {
      config.fail("moe_topk", "exceeds the number of experts");
    }
    decoder.layers[i].feed_forward = experts;
  }
  return decoder;
}

}  // namespace espalier::models
