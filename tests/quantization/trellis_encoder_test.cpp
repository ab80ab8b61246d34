#include "quantization/trellis_encoder.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "mlx/mlx.h"

namespace espalier::quantization {
namespace {

using kernels::TrellisFormat;

std::vector<float> gaussians(int count) {
  std::mt19937 random(42);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

double mean_square_error(const TrellisFormat& format, TrellisScale scale) {
  constexpr int rows = 16;
  constexpr int columns = 2048;
  const auto values = gaussians(rows * columns);
  return encode_trellis(values.data(), rows, columns, format, scale).square_error /
         (rows * columns);
}

// QTIP's table of unit Gaussians and the format's own measurements, 3 % for the small sample.
TEST(TrellisEncoder, ErrorOnGaussiansIsThePublishedOne) {
  EXPECT_LT(mean_square_error({.bits = 2}, TrellisScale::refitted), .0752 * 1.03);
  EXPECT_LT(mean_square_error({.bits = 3}, TrellisScale::refitted), .0195 * 1.03);
  EXPECT_LT(mean_square_error({.bits = 4}, TrellisScale::refitted), .0051 * 1.03);
  EXPECT_NEAR(mean_square_error({.bits = 2}, TrellisScale::root_mean_square), .0746, .0746 * .03);
}

class DecodedTrellis : public testing::TestWithParam<bool> {};

TEST_P(DecodedTrellis, IsWhatTheEncoderSays) {
  const TrellisFormat format{.bits = 3, .axis = 1, .half_bit = GetParam()};
  const auto words = format.words(2);
  const auto values = gaussians(4 * 512);
  const TrellisCodes codes = encode_trellis(values.data(), 4, 512, format, TrellisScale::refitted);
  const kernels::TrellisMatrix packed = kernels::pack_trellis(
      {"w.weight", arrays::StorageType::u32, {4, words}, std::as_bytes(std::span(codes.words))},
      {"w.scales", arrays::StorageType::f16, {4}, std::as_bytes(std::span(codes.scales))}, format);
  auto decoded = kernels::expand_trellis(packed, mlx::core::float32);
  mlx::core::eval(decoded);
  double error = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    error += std::pow(decoded.data<float>()[i] - values[i], 2);
  }
  EXPECT_NEAR(error, codes.square_error, 1e-4 * error);
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutHalfABit, DecodedTrellis, testing::Bool());

// The mean of both neighbours: half of the trellis blocks have the bits of each.
TEST(TrellisEncoder, HalfABitLiesInBetween) {
  const double error = mean_square_error({.bits = 3, .half_bit = true}, TrellisScale::refitted);
  EXPECT_LT(error, (.0195 + .0051) / 2 * 1.03);
}

TEST(TrellisEncoder, RowsOutOfTheRangeOfScales) {
  std::vector<float> values(3 * 256);
  for (int i = 0; i < 256; ++i) {
    values[256 + i] = 1e-12F;
    values[512 + i] = 1e-3F;
  }
  const TrellisCodes codes =
      encode_trellis(values.data(), 3, 256, {.bits = 4}, TrellisScale::root_mean_square);
  EXPECT_EQ(codes.scales[0], 0x3C00);  // a row of zeros: scale 1
  EXPECT_EQ(codes.scales[1], 0x0001);  // below the range: the smallest, never zero
  EXPECT_GT(codes.scales[2], 0x0001);
  values[5] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(encode_trellis(values.data(), 3, 256, {.bits = 4}, TrellisScale::root_mean_square),
               base::LoadError);
}

}  // namespace
}  // namespace espalier::quantization
