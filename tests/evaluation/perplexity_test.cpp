#include "evaluation/perplexity.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "evaluation/bigram_model.h"

namespace espalier::evaluation {
namespace {

using tests::BigramModel;
using tokenizer::TokenId;

// After 0 comes 1 with probability 1/2; after 1 comes 0 with 1/4; after 2 all are equally likely.
BigramModel model() {
  return BigramModel({{0.25, 0.5, 0.25}, {0.25, 0.25, 0.5}, {1 / 3.0, 1 / 3.0, 1 / 3.0}});
}

TEST(Perplexity, LlamaCppScoresTheSecondHalfOfEachChunk) {
  BigramModel bigram = model();
  // Chunks of 4; of each only the last token is scored, from the third.
  const std::vector<TokenId> tokens = {2, 2, 0, 1, 2, 2, 1, 0, 0, 0, 0};
  const auto result = perplexity(bigram, tokens, std::nullopt, {.context = 4});
  EXPECT_EQ(result.tokens, 2);
  EXPECT_NEAR(result.perplexity, std::exp(-(std::log(0.5) + std::log(0.25)) / 2), 1e-6);
}

TEST(Perplexity, LlamaCppScoresContextMinusOneMinusHalf) {
  BigramModel bigram = model();
  // Chunks of 8: tokens 5, 6 and 7 are scored.
  const std::vector<TokenId> tokens = {2, 2, 2, 2, 0, 1, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2};
  const auto result = perplexity(bigram, tokens, std::nullopt, {.context = 8});
  EXPECT_EQ(result.tokens, 6);
  const double sum = std::log(0.5) + std::log(0.25) + std::log(0.5) + 3 * std::log(1 / 3.0);
  EXPECT_NEAR(result.perplexity, std::exp(-sum / 6), 1e-6);
  // The standard error of a mean, carried through exp.
  double variance = 0;
  for (const double p : {0.5, 0.25, 0.5, 1 / 3.0, 1 / 3.0, 1 / 3.0}) {
    variance += std::pow(-std::log(p) + sum / 6, 2) / 6;
  }
  EXPECT_NEAR(result.standard_error, result.perplexity * std::sqrt(variance / 5), 1e-6);
}

TEST(Perplexity, StartTokenReplacesTheFirstOfEachChunk) {
  BigramModel bigram = model();
  const std::vector<TokenId> tokens = {2, 2, 0, 1, 2, 2, 1, 0};
  perplexity(bigram, tokens, 1, {.context = 4});
  ASSERT_GE(bigram.seen.size(), 4U);
  EXPECT_EQ(bigram.seen[0], (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(bigram.seen[1], (std::vector<std::int32_t>{0}));
  EXPECT_EQ(bigram.seen[2], (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(bigram.positions, (std::vector<int>{0, 2, 0, 2}));
}

TEST(Perplexity, MlxLmScoresAllButTheFirstOfARow) {
  BigramModel bigram = model();
  const std::vector<TokenId> tokens = {0, 1, 0, 1, 0, 2, 2};
  const auto result = perplexity(bigram, tokens, 2, {.context = 3, .mlx_lm = true});
  EXPECT_EQ(result.tokens, 4);
  const double sum = std::log(0.5) + std::log(0.25) + std::log(0.25) + std::log(0.25);
  EXPECT_NEAR(result.perplexity, std::exp(-sum / 4), 1e-6);
  const auto one = perplexity(bigram, tokens, 2, {.context = 3, .mlx_lm = true, .samples = 1});
  EXPECT_EQ(one.tokens, 2);
}

TEST(Perplexity, RefusesWhatCannotBeScored) {
  BigramModel bigram = model();
  EXPECT_THROW(perplexity(bigram, {0, 1, 0}, {}, {.context = 4}), base::UsageError);
  EXPECT_THROW(perplexity(bigram, std::vector<TokenId>(8, 3), {}, {.context = 4}),
               base::UsageError);
  EXPECT_THROW(perplexity(bigram, std::vector<TokenId>(8, 0), {}, {.context = 2}),
               base::UsageError);
  EXPECT_THROW(perplexity(bigram, std::vector<TokenId>(999, 0), {}, {.context = 65}),
               base::UsageError);
}

}  // namespace
}  // namespace espalier::evaluation
