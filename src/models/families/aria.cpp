#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

namespace espalier::models {

// Aria's text model: Llama with experts in every layer, whose matrices lie [inputs, outputs], and a
// shared part.
Descriptor read_aria(ConfigReader& config) {
  config.set_defaults({{"num_experts", config.integer("moe_num_experts", 8)},
                       {"num_experts_per_tok", config.integer("moe_topk", 2)}});
  Descriptor decoder = read_llama(config);
  ExpertsDescriptor experts = softmax_experts(config, "intermediate_size");
  experts.router.rule.normalize = true;
  experts.layout = ExpertsDescriptor::Layout::transposed;
  experts.activation = layers::Activation::silu;
  if (const int shared = config.integer("moe_num_shared_experts", 2); shared > 0) {
    experts.shared = decoder.layers.front().mlp();
    experts.shared->hidden = config.product("moe_num_shared_experts", shared, experts.hidden);
  }
  ExpertNames& names = decoder.names.experts;
  names.router = "mlp.router";
  names.input = {"mlp.experts.fc1"};
  names.down = "mlp.experts.fc2";
  name_shared_expert(names, "mlp.shared_experts");
  set_experts(decoder, experts);
  return decoder;
}

}  // namespace espalier::models
