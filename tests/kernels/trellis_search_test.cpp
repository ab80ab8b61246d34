#include "kernels/trellis_search.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_features.h"

namespace espalier::kernels {
namespace {

struct Expected {
  int bits;
  std::uint32_t first_words[3];
  std::uint32_t last_word;
  std::uint32_t states[3];  // of positions 0, 1 and 255
  double mean_square_error;
};

/// The format's published vectors for x[t] = ((73 t + 19) mod 257 - 128) / 64.
constexpr Expected vectors[] = {
    {2, {0x858adaed, 0x4efe1e45, 0xf2cb9a12}, 0xaedcd3c4, {2998, 3802, 2797}, .089314},
    {3, {0x9ff81d2d, 0xbcc966f0, 0x98539474}, 0xf4428ff1, {2415, 2941, 3373}, .026422},
    {4, {0x3c1c4b09, 0x2e6fbf39, 0x7f3f79d8}, 0xe3eaf4f6, {158, 2531, 2825}, .006696},
};

class TrellisSearchSets : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (!supports(GetParam())) {
      GTEST_SKIP() << "this processor lacks " << to_string(GetParam());
    }
    force_instruction_set(GetParam());
  }
  void TearDown() override { force_instruction_set({}); }
};

TEST_P(TrellisSearchSets, FindsThePublishedPaths) {
  float x[trellis_block_weights];
  for (int i = 0; i < trellis_block_weights; ++i) {
    x[i] = static_cast<float>((73 * i + 19) % 257 - 128) / 64;
  }
  for (const Expected& expected : vectors) {
    const TrellisFormat format{.bits = expected.bits};
    TrellisSearch search(format);
    std::vector<std::uint32_t> words(trellis_block_words(expected.bits));
    float values[trellis_block_weights];
    search.encode(x, nullptr, words.data(), values);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(words[i], expected.first_words[i]) << expected.bits << " bits, word " << i;
    }
    EXPECT_EQ(words.back(), expected.last_word);
    const int positions[] = {0, 1, 255};
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(trellis_state(words.data(), format.bits, format.state_bits, positions[i]),
                expected.states[i]);
    }
    double error = 0;
    for (int i = 0; i < trellis_block_weights; ++i) {
      error += (values[i] - x[i]) * (values[i] - x[i]);
    }
    EXPECT_NEAR(error / trellis_block_weights, expected.mean_square_error, 1e-6);
  }
}

TEST_P(TrellisSearchSets, NumbersThatCountMoreAreMet) {
  TrellisSearch search({.bits = 3});
  float x[trellis_block_weights];
  float ones[trellis_block_weights];
  float weights[trellis_block_weights];
  for (int i = 0; i < trellis_block_weights; ++i) {
    x[i] = static_cast<float>((73 * i + 19) % 257 - 128) / 64;
    ones[i] = 1;
    weights[i] = i % 4 == 0 ? 30.0F : 0.5F;
  }
  std::uint32_t words[trellis_block_words(3)];
  std::uint32_t same[trellis_block_words(3)];
  float plain[trellis_block_weights];
  float weighted[trellis_block_weights];
  search.encode(x, nullptr, words, plain);
  search.encode(x, ones, same, weighted);
  EXPECT_TRUE(std::ranges::equal(words, same));
  search.encode(x, weights, words, weighted);
  const auto error = [&](const float* values) {
    double sum = 0;
    for (int i = 0; i < trellis_block_weights; ++i) {
      sum += weights[i] * std::pow(values[i] - x[i], 2);
    }
    return sum;
  };
  EXPECT_LT(error(weighted), 0.5 * error(plain));
}

TEST_P(TrellisSearchSets, PathsOfLongStatesClose) {
  const TrellisFormat format{.bits = 2, .state_bits = 16};
  TrellisSearch search(format);
  std::vector<std::uint32_t> words(trellis_block_words(format.bits));
  float x[trellis_block_weights];
  for (int i = 0; i < trellis_block_weights; ++i) {
    x[i] = static_cast<float>((73 * i + 19) % 257 - 128) / 64;
  }
  float values[trellis_block_weights];
  search.encode(x, nullptr, words.data(), values);
  const std::vector<float> table = trellis_values(format);
  for (int i = 0; i < trellis_block_weights; ++i) {
    EXPECT_EQ(values[i], table[trellis_state(words.data(), format.bits, format.state_bits, i)]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TrellisSearchSets,
                         testing::Values(InstructionSet::scalar, InstructionSet::avx2,
                                         InstructionSet::avx512),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(TrellisSearch, TableHasTheFormatsMeanSquare) {
  EXPECT_NEAR(TrellisSearch({.bits = 3}).root_mean_square(), 1.0041072042258816, 1e-9);
}

}  // namespace
}  // namespace espalier::kernels
