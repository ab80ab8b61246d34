#include "models/families/experts.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "models/families/dense.h"

namespace espalier::models {

namespace {

/// DeepSeek-V3 adds this to the sum of weights that it divides by.
constexpr float added_to_sum = 1e-20F;

void check_rule(const ConfigReader& config, const layers::RouterRule& rule) {
  if (rule.experts < 1 || rule.chosen < 1 || rule.chosen > rule.experts) {
    config.fail("num_experts_per_tok", "is " + std::to_string(rule.chosen) + " of " +
                                           std::to_string(rule.experts) + " experts");
  }
  if (rule.groups < 1 || rule.experts % rule.groups != 0 || rule.chosen_groups < 1 ||
      rule.chosen_groups > rule.groups ||
      rule.experts / rule.groups * rule.chosen_groups < rule.chosen) {
    config.fail("n_group", "is " + std::to_string(rule.groups) + " for " +
                               std::to_string(rule.experts) + " experts, of which " +
                               std::to_string(rule.chosen) + " from " +
                               std::to_string(rule.chosen_groups) + " groups are chosen");
  }
}

}  // namespace

int expert_count(const ConfigReader& config) {
  constexpr std::array keys = {"num_local_experts", "num_experts", "n_routed_experts"};
  const auto* key =
      std::ranges::find_if(keys, [&](const char* candidate) { return config.contains(candidate); });
  const int count = config.integer(key == keys.end() ? keys[0] : *key);
  for (const char* other : keys) {
    config.ignore(other);
  }
  return count;
}

ExpertsDescriptor softmax_experts(const ConfigReader& config, std::string_view hidden_key,
                                  std::string_view activation_key) {
  ExpertsDescriptor experts{.router = {.rule = {.experts = expert_count(config),
                                                .chosen = config.integer("num_experts_per_tok")}},
                            .hidden = config.integer(hidden_key),
                            .activation = read_activation(config, activation_key)};
  check_rule(config, experts.router.rule);
  return experts;
}

ExpertsDescriptor deepseek_experts(const ConfigReader& config, Descriptor& decoder, bool grouped) {
  ExpertsDescriptor experts = softmax_experts(config, "moe_intermediate_size");
  layers::RouterRule& rule = experts.router.rule;
  rule.score = layers::RouterRule::Score::sigmoid;
  const int groups = config.integer("n_group", 1);
  const int chosen_groups = config.integer("topk_group", 1);
  rule.groups = grouped ? groups : 1;
  rule.chosen_groups = grouped ? chosen_groups : 1;
  rule.normalize = config.boolean("norm_topk_prob", true);
  rule.added_to_sum = added_to_sum;
  rule.scale = static_cast<float>(config.number("routed_scaling_factor", 1));
  check_rule(config, rule);
  experts.router.correction_bias = true;
  decoder.names.experts = expert_names("mlp");
  decoder.names.experts.correction_bias = "mlp.gate.e_score_correction_bias";
  const int shared = config.integer(
      config.contains("num_shared_experts") ? "num_shared_experts" : "n_shared_experts", 0);
  if (shared > 0) {
    experts.shared =
        MlpDescriptor{.hidden = config.product("n_shared_experts", shared, experts.hidden),
                      .activation = experts.activation};
    name_shared_expert(decoder.names.experts, "mlp.shared_experts");
  }
  return experts;
}

void set_experts(Descriptor& decoder, const ExpertsDescriptor& experts,
                 const std::vector<bool>& sparse) {
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    if (sparse.at(i)) {
      decoder.layers[i].feed_forward = experts;
    }
  }
}

void set_experts(Descriptor& decoder, const ExpertsDescriptor& experts, int first) {
  for (std::size_t i = static_cast<std::size_t>(first); i < decoder.layers.size(); ++i) {
    decoder.layers[i].feed_forward = experts;
  }
}

std::vector<bool> sparse_layers(const ConfigReader& config, std::size_t layers, int default_first) {
  const auto first =
      static_cast<std::size_t>(config.integer("first_k_dense_replace", default_first));
  const std::vector<std::string> types = config.strings("mlp_layer_types");
  std::vector<bool> sparse(layers);
  if (!types.empty() && types.size() != layers) {
    config.fail("mlp_layer_types", "has " + std::to_string(types.size()) + " entries for " +
                                       std::to_string(layers) + " layers");
  }
  for (std::size_t i = 0; i < layers; ++i) {
    if (!types.empty() && types[i] != "dense" && types[i] != "sparse") {
      config.fail("mlp_layer_types", "names '" + types[i] + "', which is not supported");
    }
    sparse[i] = types.empty() ? i >= first : types[i] == "sparse";
  }
  return sparse;
}

ExpertNames expert_names(const std::string& part, const std::string& gate, const std::string& up,
                         const std::string& down) {
  const std::string expert = part + ".experts.{}.";
  ExpertNames names;
  names.router = part + ".gate";
  names.input = {expert + gate, expert + up};
  names.down = expert + down;
  return names;
}

void name_shared_expert(ExpertNames& names, const std::string& part) {
  names.shared_input = {part + ".gate_proj", part + ".up_proj"};
  names.shared_down = part + ".down_proj";
}

}  // namespace espalier::models
