#pragma once

#include <span>
#include <vector>

#include "layers/router_rule.h"

namespace espalier::layers {

/// One of a token's experts.
struct Choice {
  int expert;
  float weight;
};

/// A token's experts, in the order of their indices, from its router's logits [experts];
/// `correction` [experts] is added to the scores for choosing alone, or empty.
std::vector<Choice> choose_experts(std::span<const float> logits, std::span<const float> correction,
                                   const RouterRule& rule);

}  // namespace espalier::layers
