#include "generation/random.h"

#include <array>
#include <cstdint>

#include <gtest/gtest.h>

namespace espalier::generation {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers for philox4x32-10 of the Random123 distribution (tests/kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, IsTheFirstTwoWordsAsAFraction) {
  // 0x6627e8d5e169c58d >> 11 = 0xCC4FD1ABC2D38, over 2^53.
  EXPECT_EQ(uniform(0, 0), 0xCC4FD1ABC2D38p-53);
}

TEST(Uniform, DependsOnAllBitsOfSeedAndPosition) {
  const double reference = uniform(0, 0);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(uniform(std::uint64_t{1} << bit, 0), reference) << bit;
    EXPECT_NE(uniform(0, std::uint64_t{1} << bit), reference) << bit;
  }
}

TEST(Uniform, StaysBelowOneAndCoversTheInterval) {
  std::array<int, 16> buckets{};
  for (std::uint64_t position = 0; position < 16000; ++position) {
    const double value = uniform(7, position);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    ++buckets[static_cast<int>(value * 16)];
  }
  // Each bucket is binomial with mean 1000 and standard deviation 31: six of them either way.
  for (const int count : buckets) {
    EXPECT_NEAR(count, 1000, 184);
  }
}

}  // namespace
}  // namespace espalier::generation
