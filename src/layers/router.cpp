#include "layers/router.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace espalier::layers {
namespace {

constexpr float none = -std::numeric_limits<float>::infinity();

std::vector<float> softmax(std::span<const float> logits) {
  const float largest = *std::ranges::max_element(logits);
  std::vector<float> scores;
  float sum = 0;
  for (const float logit : logits) {
    scores.push_back(std::exp(logit - largest));
    sum += scores.back();
  }
  for (float& score : scores) {
    score /= sum;
  }
  return scores;
}

std::vector<float> to_scores(std::span<const float> logits, RouterRule::Score kind) {
  if (kind == RouterRule::Score::softmax) {
    return softmax(logits);
  }
  std::vector<float> scores;
  for (const float logit : logits) {
    scores.push_back(1.0F / (1.0F + std::exp(-logit)));
  }
  return scores;
}

/// The indices of the `count` largest values, in no order. NaN counts as largest. Of equal values
/// those are taken that PyTorch's `topk` takes, which selects in the same way: a router without
/// training, all of whose logits are equal, then agrees with it.
std::vector<int> largest(std::span<const float> values, int count) {
  constexpr std::size_t sorted_part = 64;  // PyTorch sorts where so many times `count` fit
  std::vector<std::pair<float, int>> order;
  for (const float value : values) {
    order.emplace_back(value, static_cast<int>(order.size()));
  }
  const auto before = [](const auto& a, const auto& b) {
    return (std::isnan(a.first) && !std::isnan(b.first)) || a.first > b.first;
  };
  if (static_cast<std::size_t>(count) * sorted_part <= order.size()) {
    std::partial_sort(order.begin(), order.begin() + count, order.end(), before);
  } else {
    std::nth_element(order.begin(), order.begin() + count - 1, order.end(), before);
  }
  std::vector<int> indices;
  for (int i = 0; i < count; ++i) {
    indices.push_back(order[i].second);
  }
  return indices;
}

float group_score(std::span<const float> scores, RouterRule::GroupScore kind) {
  float best = none;
  float second = none;
  for (const float score : scores) {
    second = std::max(second, std::min(best, score));
    best = std::max(best, score);
  }
  return kind == RouterRule::GroupScore::best ? best : best + second;
}

/// Makes the experts of all but the best groups impossible to choose.
void limit_groups(std::vector<float>& scores, const RouterRule& rule) {
  const std::size_t size = scores.size() / static_cast<std::size_t>(rule.groups);
  std::vector<float> group_scores;
  for (int group = 0; group < rule.groups; ++group) {
    group_scores.push_back(group_score(
        std::span(scores).subspan(static_cast<std::size_t>(group) * size, size), rule.group_score));
  }
  std::vector<bool> allowed(static_cast<std::size_t>(rule.groups));
  for (const int group : largest(group_scores, rule.chosen_groups)) {
    allowed[group] = true;
  }
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (!allowed[i / size]) {
      scores[i] = none;
    }
  }
}

/// The best of the logits still open, weighed by a softmax over those open ones that come within
/// twice the tolerance of it.
Choice sparse_choice(std::span<const float> logits, const std::vector<float>& open,
                     float tolerance) {
  const int best = static_cast<int>(std::ranges::max_element(open) - open.begin());
  const float top = open[best];
  float sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float factor = std::max(std::abs(logits[i]), top);
    if ((top - logits[i]) / factor <= 2 * tolerance) {
      sum += std::exp(open[i] - top);
    }
  }
  return {best, 1 / sum};
}

std::vector<Choice> sparse_mixer(std::span<const float> logits, const RouterRule& rule) {
  std::vector<float> open(logits.begin(), logits.end());
  std::vector<Choice> choices;
  for (int i = 0; i < rule.chosen; ++i) {
    choices.push_back(sparse_choice(logits, open, rule.tolerance));
    open[choices.back().expert] = none;
  }
  return choices;
}

std::vector<Choice> best_scores(std::span<const float> logits, std::span<const float> correction,
                                const RouterRule& rule) {
  const std::vector<float> scores = to_scores(logits, rule.score);
  std::vector<float> choosing = scores;
  for (std::size_t i = 0; i < correction.size(); ++i) {
    choosing[i] += correction[i];
  }
  if (rule.groups > 1) {
    limit_groups(choosing, rule);
  }
  std::vector<Choice> choices;
  float sum = 0;
  for (const int expert : largest(choosing, rule.chosen)) {
    choices.push_back({expert, scores[expert]});
    sum += scores[expert];
  }
  const float divisor = rule.normalize ? std::max(sum, rule.smallest_sum) + rule.added_to_sum : 1;
  for (Choice& choice : choices) {
    choice.weight = choice.weight / divisor * rule.scale;
  }
  return choices;
}

}  // namespace

std::vector<Choice> choose_experts(std::span<const float> logits, std::span<const float> correction,
                                   const RouterRule& rule) {
  std::vector<Choice> choices = rule.score == RouterRule::Score::sparse_mixer
                                    ? sparse_mixer(logits, rule)
                                    : best_scores(logits, correction, rule);
  std::ranges::sort(choices, {}, &Choice::expert);
  return choices;
}

}  // namespace espalier::layers
