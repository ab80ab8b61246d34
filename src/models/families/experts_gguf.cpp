#include "models/families/dense.h"
#include "models/families/experts.h"

namespace espalier::models {
namespace {

/// `expert_gating_func` of a GGUF file.
constexpr int gating_softmax = 1;
constexpr int gating_sigmoid = 2;

layers::RouterRule read_rule(const GgufReader& file, bool normalize) {
  layers::RouterRule rule{.experts = file.integer("expert_count"),
                          .chosen = file.integer("expert_used_count")};
  const int gating = file.integer("expert_gating_func", gating_softmax);
  if (gating == gating_sigmoid) {
    rule.score = layers::RouterRule::Score::sigmoid;
    rule.added_to_sum = 1e-20F;
  } else if (gating != gating_softmax) {
    file.fail("expert_gating_func", "is " + std::to_string(gating) + ", which is not supported");
  }
  rule.normalize = file.boolean("expert_weights_norm", normalize);
  rule.groups = file.integer("expert_group_count", 1);
  rule.chosen_groups = file.integer("expert_group_used_count", 1);
  const double scale = file.number("expert_weights_scale", 1);
  rule.scale = scale == 0 ? 1.0F : static_cast<float>(scale);
  if (rule.experts < 1 || rule.chosen < 1 || rule.chosen > rule.experts || rule.groups < 1 ||
      rule.experts % rule.groups != 0 || rule.chosen_groups > rule.groups) {
    file.fail("expert_used_count", "is " + std::to_string(rule.chosen) + " of " +
                                       std::to_string(rule.experts) + " experts");
  }
  return rule;
}

}  // namespace

ExpertsDescriptor read_experts(const GgufReader& file, Descriptor& decoder, bool normalize) {
  const int dense_hidden = file.integer("feed_forward_length", 0);
  const int first = file.integer("leading_dense_block_count", 0);
  const std::string prefix = "blk." + std::to_string(first) + ".";
  ExpertsDescriptor experts{.router = {.rule = read_rule(file, normalize)},
                            .hidden = file.integer("expert_feed_forward_length", dense_hidden),
                            .layout = ExpertsDescriptor::Layout::stacked};
  ExpertNames& names = decoder.names.experts;
  names.router = "ffn_gate_inp";
  names.input = {"ffn_gate_exps", "ffn_up_exps"};
  names.down = "ffn_down_exps";
  experts.router.correction_bias = file.has_tensor(prefix + "exp_probs_b.bias");
  names.correction_bias = "exp_probs_b.bias";
  if (file.has_tensor(prefix + "ffn_up_shexp.weight")) {
    experts.shared = MlpDescriptor{.hidden = file.tensor_rows(prefix + "ffn_up_shexp.weight")};
    names.shared_input = {"ffn_gate_shexp", "ffn_up_shexp"};
    names.shared_down = "ffn_down_shexp";
    experts.shared_gate = file.has_tensor(prefix + "ffn_gate_inp_shexp.weight");
    names.shared_gate = "ffn_gate_inp_shexp";
  }
  for (const char* key : {"expert_shared_count", "expert_shared_feed_forward_length"}) {
    file.integer(key, 0);
  }
  set_experts(decoder, experts, first);
  return experts;
}

}  // namespace espalier::models
