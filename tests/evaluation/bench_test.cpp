#include "evaluation/bench.h"

#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "evaluation/bigram_model.h"

namespace espalier::evaluation {
namespace {

using tests::BigramModel;

TEST(Bench, RunsWhatItSays) {
  BigramModel bigram({{0.25, 0.75}, {0.6, 0.4}});
  const auto result = bench(bigram, {.prompt = 5, .gen = 3, .depth = 4, .repeat = 2, .chunk = 4});
  EXPECT_EQ(result.prefill.size(), 2U);
  EXPECT_EQ(result.decode.size(), 2U);
  // A prefill stands at depth 4 and comes in pieces of 4 and 1.
  const std::vector<int> prefill(bigram.positions.begin(), bigram.positions.begin() + 6);
  EXPECT_EQ(prefill, (std::vector<int>{0, 4, 8, 0, 4, 8}));
  // The last decoding: three single tokens after the depth.
  const std::vector<int> decode(bigram.positions.end() - 4, bigram.positions.end());
  EXPECT_EQ(decode, (std::vector<int>{0, 4, 5, 6}));
  // Greedy: the likeliest after 0 is 1, after 1 it is 0.
  const auto& first = *(bigram.seen.end() - 3);
  const auto& second = *(bigram.seen.end() - 2);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0], 1 - first[0]);
}

TEST(Bench, JsonHasMediansAndNullForWhatWasNotMeasured) {
  BigramModel bigram({{0.25, 0.75}, {0.6, 0.4}});
  const auto result = bench(bigram, {.prompt = 5, .gen = 0, .repeat = 3});
  const auto json = to_json(result);
  EXPECT_EQ(json.at("prefill_tokens_per_s"), median(result.prefill));
  EXPECT_TRUE(json.at("decode_tokens_per_s").is_null());
  EXPECT_EQ(json.at("prefill_samples").size(), 3U);
}

TEST(Bench, MedianIsTheMiddle) {
  EXPECT_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median({4.0, 1.0, 2.0, 3.0}), 2.5);
}

TEST(Bench, RefusesNonsense) {
  BigramModel bigram({{0.25, 0.75}, {0.6, 0.4}}, 64);
  EXPECT_THROW(bench(bigram, {.prompt = 0, .gen = 0}), base::UsageError);
  EXPECT_THROW(bench(bigram, {.prompt = -1}), base::UsageError);
  EXPECT_THROW(bench(bigram, {.prompt = 1, .gen = 1, .repeat = 0}), base::UsageError);
  EXPECT_THROW(bench(bigram, {.prompt = 65}), base::UsageError);
  EXPECT_THROW(bench(bigram, {.prompt = 32, .gen = 1, .depth = 33}), base::UsageError);
}

}  // namespace
}  // namespace espalier::evaluation
