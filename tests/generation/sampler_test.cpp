#include "generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "generation/random.h"

namespace espalier::generation {
namespace {

using tokenizer::TokenId;

constexpr float infinity = std::numeric_limits<float>::infinity();

// Logits whose softmax is `probabilities`; the offset must not matter.
std::vector<float> logits_of(const std::vector<double>& probabilities, double offset = 3.0) {
  std::vector<float> logits;
  for (const double probability : probabilities) {
    logits.push_back(static_cast<float>(std::log(probability) + offset));
  }
  return logits;
}

TokenId choose(const std::vector<float>& logits, const SamplingParameters& parameters,
               const std::vector<TokenId>& prompt = {0},
               const std::vector<TokenId>& generated = {}) {
  Sampler sampler(static_cast<int>(logits.size()));
  return sampler.sample(logits, parameters, prompt, generated, -1).token;
}

// Checks that the tokens chosen over many seeds are those of the inverse distribution function of
// `expected` (id → probability), whose borders are exact up to float rounding of the logits.
void expect_distribution(const std::vector<float>& logits, SamplingParameters parameters,
                         const std::map<TokenId, double>& expected) {
  std::set<TokenId> seen;
  int near_border = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    parameters.seed = seed;
    const double random = uniform(seed, 1);
    double sum = 0;
    TokenId answer = -1;
    bool border = false;
    for (const auto& [id, probability] : expected) {
      sum += probability;
      border |= std::abs(random - sum) < 1e-6;
      if (random < sum && answer < 0) {
        answer = id;
      }
    }
    if (border) {
      ++near_border;
      continue;
    }
    ASSERT_EQ(choose(logits, parameters), answer) << "seed " << seed << ", random " << random;
    seen.insert(answer);
  }
  EXPECT_LT(near_border, 10);
  EXPECT_EQ(seen.size(), expected.size());
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfEqualOnes) {
  const SamplingParameters greedy{.temperature = 0};
  EXPECT_EQ(choose({1, 5, 3}, greedy), 1);
  EXPECT_EQ(choose({1, 5, 5, 5}, greedy), 1);
  EXPECT_EQ(choose({-infinity, -7, -infinity}, greedy), 1);
  // Every position of the row, also beyond the vectorized part.
  for (int width = 1; width < 70; ++width) {
    for (int best = 0; best < width; ++best) {
      std::vector<float> logits(width, -1.0F);
      logits[best] = 2;
      ASSERT_EQ(choose(logits, greedy), best) << width;
    }
  }
}

TEST(Sampler, PlainSamplingFollowsTheSoftmax) {
  expect_distribution(logits_of({0.5, 0.25, 0.125, 0.125}), {},
                      {{0, 0.5}, {1, 0.25}, {2, 0.125}, {3, 0.125}});
}

TEST(Sampler, TemperatureRaisesProbabilitiesToItsInverse) {
  // 1/2: squares 1/4, 1/16, 1/64, 1/64 over 22/64.
  expect_distribution(logits_of({0.5, 0.25, 0.125, 0.125}), {.temperature = 0.5F},
                      {{0, 16.0 / 22}, {1, 4.0 / 22}, {2, 1.0 / 22}, {3, 1.0 / 22}});
}

TEST(Sampler, TopKKeepsExactlyKTheLowestIdsOfEqualOnes) {
  expect_distribution(logits_of({0.125, 0.25, 0.5, 0.125}), {.top_k = 2},
                      {{1, 1.0 / 3}, {2, 2.0 / 3}});
  expect_distribution(logits_of({0.125, 0.25, 0.5, 0.125}), {.top_k = 3},
                      {{0, 1.0 / 7}, {1, 2.0 / 7}, {2, 4.0 / 7}});
  expect_distribution(logits_of({0.25, 0.25, 0.25, 0.25}), {.top_k = 9},
                      {{0, 0.25}, {1, 0.25}, {2, 0.25}, {3, 0.25}});
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  const auto logits = logits_of({0.1, 0.2, 0.3, 0.4});
  expect_distribution(logits, {.top_p = 0.39F}, {{3, 1}});
  expect_distribution(logits, {.top_p = 0.41F}, {{2, 3.0 / 7}, {3, 4.0 / 7}});
  expect_distribution(logits, {.top_p = 0.69F}, {{2, 3.0 / 7}, {3, 4.0 / 7}});
  expect_distribution(logits, {.top_p = 0.71F}, {{1, 2.0 / 9}, {2, 3.0 / 9}, {3, 4.0 / 9}});
  expect_distribution(logits, {.top_p = 0.91F}, {{0, 0.1}, {1, 0.2}, {2, 0.3}, {3, 0.4}});
  expect_distribution(logits, {.top_p = 0}, {{3, 1}});
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
  // Of the two kept ones the first has 4/7 = 0.571.
  const auto logits = logits_of({0.1, 0.2, 0.3, 0.4});
  expect_distribution(logits, {.top_k = 2, .top_p = 0.56F}, {{3, 1}});
  expect_distribution(logits, {.top_k = 2, .top_p = 0.58F}, {{2, 3.0 / 7}, {3, 4.0 / 7}});
}

TEST(Sampler, MinPIsRelativeToTheMostLikely) {
  const auto logits = logits_of({0.1, 0.2, 0.3, 0.4});
  expect_distribution(logits, {.min_p = 0.49F}, {{1, 2.0 / 9}, {2, 3.0 / 9}, {3, 4.0 / 9}});
  expect_distribution(logits, {.min_p = 0.51F}, {{2, 3.0 / 7}, {3, 4.0 / 7}});
  expect_distribution(logits, {.min_p = 1}, {{3, 1}});
}

TEST(Sampler, FiltersApplyToTheTemperedDistribution) {
  // Tempered: 1, 4, 9, 16 of 30: the first has 0.533, the first two 0.833.
  const auto logits = logits_of({0.1, 0.2, 0.3, 0.4});
  expect_distribution(logits, {.temperature = 0.5F, .top_p = 0.53F}, {{3, 1}});
  expect_distribution(logits, {.temperature = 0.5F, .top_p = 0.54F},
                      {{2, 9.0 / 25}, {3, 16.0 / 25}});
  expect_distribution(logits, {.temperature = 0.5F, .min_p = 0.55F},
                      {{2, 9.0 / 25}, {3, 16.0 / 25}});
}

// Top-p over a wide row against a full sort.
TEST(Sampler, NucleusOfAWideRowIsThatOfAFullSort) {
  constexpr int width = 5000;
  for (std::uint64_t row = 0; row < 20; ++row) {
    std::vector<float> logits;
    for (int id = 0; id < width; ++id) {
      logits.push_back(static_cast<float>(uniform(row, id) * (1.0 + static_cast<double>(row))));
    }
    for (const float top_p : {0.05F, 0.5F, 0.9F, 0.999F}) {
      std::vector<TokenId> order(width);
      for (int id = 0; id < width; ++id) order[id] = id;
      std::sort(order.begin(), order.end(),
                [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
      double total = 0;
      for (const float logit : logits) total += std::exp(static_cast<double>(logit));
      std::set<TokenId> nucleus;
      double sum = 0;
      for (const TokenId id : order) {
        if (sum >= top_p * total * (1 + 1e-6)) break;
        sum += std::exp(static_cast<double>(logits[id]));
        nucleus.insert(id);
      }
      for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const TokenId token = choose(logits, {.top_p = top_p, .seed = seed});
        EXPECT_TRUE(nucleus.contains(token)) << "row " << row << ", p " << top_p;
      }
    }
  }
}

TEST(Sampler, LogitBiasIsAdded) {
  EXPECT_EQ(choose({1, 5, 3}, {.temperature = 0, .logit_bias = {{1, -100}}}), 2);
  EXPECT_EQ(choose({1, 5, 3}, {.temperature = 0, .logit_bias = {{0, 4.5F}}}), 0);
  expect_distribution(logits_of({0.5, 0.25, 0.25}),
                      {.logit_bias = {{0, -infinity}, {2, std::log(3.0F)}}},
                      {{1, 0.25}, {2, 0.75}});
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogitsOnce) {
  const SamplingParameters parameters{.temperature = 0, .repetition_penalty = 2};
  // 6 → 3 for a token of the prompt, however often it is there.
  EXPECT_EQ(choose({6, 3.5F, 0}, parameters, {0, 0, 0}), 1);
  EXPECT_EQ(choose({6, 2.5F, 0}, parameters, {0, 0, 0}), 0);
  EXPECT_EQ(choose({6, 3.5F, 0}, parameters, {2}, {0}), 1);
  // -1 → -2.
  EXPECT_EQ(choose({-1, -1.5F}, parameters, {0}), 1);
  EXPECT_EQ(choose({-1, -2.5F}, parameters, {0}), 0);
}

TEST(Sampler, PresenceAndFrequencyCountGeneratedTokensAlone) {
  const SamplingParameters presence{.temperature = 0, .presence_penalty = 1};
  EXPECT_EQ(choose({2, 1.5F}, presence, {0, 0}), 0);
  EXPECT_EQ(choose({2, 1.5F}, presence, {1}, {0}), 1);
  EXPECT_EQ(choose({2, 0.5F}, presence, {1}, {0, 0, 0}), 0);
  const SamplingParameters frequency{.temperature = 0, .frequency_penalty = 0.5F};
  EXPECT_EQ(choose({2, 0.9F}, frequency, {0}, {0, 0}), 0);
  EXPECT_EQ(choose({2, 0.9F}, frequency, {1}, {0, 0, 0}), 1);
  const SamplingParameters encouraged{.temperature = 0, .presence_penalty = -2};
  EXPECT_EQ(choose({2, 0.5F}, encouraged, {0}, {1}), 1);
}

TEST(Sampler, PenaltiesOfOneCallLeaveNothingForTheNext) {
  Sampler sampler(3);
  const std::vector<float> logits{2, 1.5F, 0};
  const SamplingParameters presence{.temperature = 0, .presence_penalty = 1};
  const std::vector<TokenId> prompt{0};
  const std::vector<TokenId> generated{0};
  EXPECT_EQ(sampler.sample(logits, presence, prompt, generated, -1).token, 1);
  EXPECT_EQ(sampler.sample(logits, presence, prompt, {}, -1).token, 0);
}

TEST(Sampler, BiasComesBeforeTheRepetitionPenalty) {
  // (1 + 3) / 2 = 2, not 1 / 2 + 3.
  EXPECT_EQ(
      choose({1, 2.5F}, {.temperature = 0, .repetition_penalty = 2, .logit_bias = {{0, 3}}}, {0}),
      1);
}

TEST(Sampler, LogprobsAreOfTheLogitsAsGiven) {
  const auto logits = logits_of({0.125, 0.5, 0.25, 0.125}, 80.0);
  Sampler sampler(4);
  const std::vector<TokenId> prompt{1};
  const Sample sample =
      sampler.sample(logits, {.temperature = 0, .repetition_penalty = 100, .logit_bias = {{3, 50}}},
                     prompt, {}, 3);
  EXPECT_EQ(sample.token, 3);
  EXPECT_NEAR(sample.logprob, std::log(0.125), 1e-5);
  ASSERT_EQ(sample.top.size(), 3U);
  const std::vector<TokenId> ids{1, 2, 0};
  const std::vector<double> probabilities{0.5, 0.25, 0.125};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sample.top[i].id, ids[i]);
    EXPECT_NEAR(sample.top[i].logprob, std::log(probabilities[i]), 1e-5);
  }
  EXPECT_EQ(sampler.sample(logits, {.temperature = 0}, prompt, {}, 0).top.size(), 0U);
  EXPECT_EQ(sampler.sample(logits, {.temperature = 0}, prompt, {}, 9).top.size(), 4U);
}

TEST(Sampler, PositionAndSeedChooseTheRandomNumber) {
  const std::vector<float> logits(1000, 0.0F);
  const auto expected = [](std::uint64_t seed, std::uint64_t position) {
    return static_cast<TokenId>(uniform(seed, position) * 1000);
  };
  EXPECT_EQ(choose(logits, {.seed = 3}, {1, 2}, {4}), expected(3, 3));
  EXPECT_EQ(choose(logits, {.seed = 4}, {1, 2}, {4}), expected(4, 3));
  EXPECT_EQ(choose(logits, {.seed = 3}, {1}, {}), expected(3, 1));
  // The tokens themselves do not matter.
  EXPECT_EQ(choose(logits, {.seed = 3}, {9, 9, 9}, {}), expected(3, 3));
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  for (const float temperature : {0.0F, 1.0F}) {
    const SamplingParameters parameters{.temperature = temperature};
    EXPECT_THROW(choose({1, std::nanf(""), 0}, parameters), std::runtime_error);
    EXPECT_THROW(choose({-infinity, -infinity}, parameters), std::runtime_error);
    EXPECT_THROW(choose({1, infinity}, parameters), std::runtime_error);
  }
}

TEST(Sampler, TinyTemperatureIsTheGreedyChoice) {
  EXPECT_EQ(choose({1, 1.001F, 0}, {.temperature = 1e-30F}), 1);
}

TEST(CheckSampling, NamesTheParameterOutOfRange) {
  const auto refused = [](const SamplingParameters& parameters) -> std::string {
    try {
      check_sampling(parameters, 10);
    } catch (const base::RequestError& error) {
      EXPECT_EQ(error.status(), 400);
      return error.param();
    }
    return "";
  };
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({.temperature = 0, .top_p = 0, .logit_bias = {{9, -infinity}}}), "");
  EXPECT_EQ(refused({.temperature = -1}), "temperature");
  EXPECT_EQ(refused({.temperature = std::nanf("")}), "temperature");
  EXPECT_EQ(refused({.top_k = -1}), "top_k");
  EXPECT_EQ(refused({.top_p = 1.5F}), "top_p");
  EXPECT_EQ(refused({.min_p = -0.5F}), "min_p");
  EXPECT_EQ(refused({.repetition_penalty = 0}), "repetition_penalty");
  EXPECT_EQ(refused({.presence_penalty = infinity}), "presence_penalty");
  EXPECT_EQ(refused({.frequency_penalty = -infinity}), "frequency_penalty");
  EXPECT_EQ(refused({.logit_bias = {{10, 1}}}), "logit_bias");
  EXPECT_EQ(refused({.logit_bias = {{-1, 1}}}), "logit_bias");
  EXPECT_EQ(refused({.logit_bias = {{1, std::nanf("")}}}), "logit_bias");
  EXPECT_EQ(refused({.repetition_penalty = 1e-38F}), "repetition_penalty");
  EXPECT_EQ(refused({.presence_penalty = -3e38F}), "presence_penalty");
  EXPECT_EQ(refused({.frequency_penalty = 3e38F}), "frequency_penalty");
  EXPECT_EQ(refused({.logit_bias = {{1, 3e38F}}}), "logit_bias");
  SamplingParameters bans;
  for (TokenId id = 0; id < 9; ++id) bans.logit_bias[id] = -infinity;
  EXPECT_EQ(refused(bans), "");
  bans.logit_bias[9] = -infinity;
  EXPECT_EQ(refused(bans), "logit_bias");
}

TEST(CheckSampling, WhatItAllowsLeavesAToken) {
  for (const float sign : {-1.0F, 1.0F}) {
    for (const float repetition : {0.001F, 1000.0F}) {
      const SamplingParameters extreme{.temperature = 1e-45F,
                                       .repetition_penalty = repetition,
                                       .presence_penalty = sign * 1000,
                                       .frequency_penalty = sign * 1000,
                                       .logit_bias = {{0, sign * 1e30F}, {1, -sign * 1e30F}}};
      check_sampling(extreme, 3);
      EXPECT_NO_THROW(choose({30, -30, 0}, extreme, {0, 1, 2}, {0, 0, 1, 2}));
    }
  }
}

}  // namespace
}  // namespace espalier::generation
