// Rules of choice against the published formulas, computed by hand.
#include "layers/router.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace espalier::layers {
namespace {

using Score = RouterRule::Score;

float weight_of(const std::vector<Choice>& choices, int expert) {
  for (const Choice& choice : choices) {
    if (choice.expert == expert) {
      return choice.weight;
    }
  }
  return -1;
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

TEST(Router, SoftmaxIsOverAllExperts) {
  const std::vector<float> logits = {0, std::log(2.0F), std::log(4.0F), std::log(1.0F)};
  const auto choices = choose_experts(logits, {}, {.experts = 4, .chosen = 2});
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_NEAR(weight_of(choices, 2), 0.5F, 1e-6F);
  EXPECT_NEAR(weight_of(choices, 1), 0.25F, 1e-6F);
}

TEST(Router, NormalizedWeightsAreASoftmaxOverTheChosen) {
  const std::vector<float> logits = {1, 3, 2, -5};
  const auto choices =
      choose_experts(logits, {}, {.experts = 4, .chosen = 2, .normalize = true, .scale = 2.5F});
  EXPECT_NEAR(weight_of(choices, 1), 2.5F / (1 + std::exp(-1.0F)), 1e-6F);
  EXPECT_NEAR(weight_of(choices, 2), 2.5F / (1 + std::exp(1.0F)), 1e-6F);
}

TEST(Router, CorrectionChoosesButDoesNotWeigh) {
  const std::vector<float> logits = {2, 1, 0, -1};
  const std::vector<float> correction = {0, 0, 0, 10};
  const auto choices =
      choose_experts(logits, correction, {.experts = 4, .chosen = 2, .score = Score::sigmoid});
  EXPECT_NEAR(weight_of(choices, 0), sigmoid(2), 1e-6F);
  EXPECT_NEAR(weight_of(choices, 3), sigmoid(-1), 1e-6F);
}

TEST(Router, OnlyTheBestGroupsTakePart) {
  // The best expert is in the first group, but the second one's two best are worth more.
  const std::vector<float> logits = {3, -9, 2, 2};
  RouterRule rule{
      .experts = 4, .chosen = 1, .score = Score::sigmoid, .groups = 2, .chosen_groups = 1};
  EXPECT_EQ(choose_experts(logits, {}, rule).front().expert, 2);
  rule.group_score = RouterRule::GroupScore::best;
  EXPECT_EQ(choose_experts(logits, {}, rule).front().expert, 0);
}

TEST(Router, SparseMixerWeighsAgainstThoseWithinTheTolerance) {
  // 1.0 is 0.5 of 2.0 away and out of reach at a tolerance of 0.1; 1.9 is within.
  const std::vector<float> logits = {2.0F, 1.9F, 1.0F};
  const auto choices = choose_experts(
      logits, {}, {.experts = 3, .chosen = 2, .score = Score::sparse_mixer, .tolerance = 0.1F});
  EXPECT_NEAR(weight_of(choices, 0), 1 / (1 + std::exp(-0.1F)), 1e-6F);
  EXPECT_NEAR(weight_of(choices, 1), 1.0F, 1e-6F);
}

// What torch.topk(torch.full((8,), 0.125), 2) and (…, 3) return on a processor.
TEST(Router, BreaksTiesAsTheReferenceDoes) {
  const std::vector<float> logits(8);
  auto choices = choose_experts(logits, {}, {.experts = 8, .chosen = 2});
  EXPECT_EQ(choices[0].expert, 5);
  EXPECT_EQ(choices[1].expert, 6);
  choices = choose_experts(logits, {}, {.experts = 8, .chosen = 3});
  EXPECT_EQ(choices[0].expert, 4);
  EXPECT_EQ(choices[2].expert, 6);
}

TEST(Router, ChoicesComeInTheOrderOfTheirIndices) {
  const std::vector<float> logits = {1, 2, 3, 4};
  const auto choices = choose_experts(logits, {}, {.experts = 4, .chosen = 3});
  EXPECT_EQ(choices[0].expert, 1);
  EXPECT_EQ(choices[2].expert, 3);
}

}  // namespace
}  // namespace espalier::layers
