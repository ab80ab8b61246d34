#include "layers/router.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

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

/// The indices of the `count` largest values; of equal ones the first.
std::vector<int> largest(std::span<const float> values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int a, int b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  order.resize(static_cast<std::size_t>(count));
  return order;
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
  const int best = largest(open, 1).front();
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
