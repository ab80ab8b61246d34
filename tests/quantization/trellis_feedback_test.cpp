#include "quantization/trellis_feedback.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace espalier::quantization {
namespace {

using kernels::TrellisFormat;

std::vector<float> gaussians(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// Second moments of inputs that go together: few directions have most of the variance.
std::vector<float> correlated_moments(int width) {
  constexpr int samples = 400;
  constexpr int directions = 24;
  const auto mixing = gaussians(directions * width, 5);
  const auto hidden = gaussians(samples * directions, 6);
  const auto noise = gaussians(samples * width, 7);
  std::vector<float> inputs(static_cast<std::size_t>(samples) * width);
  for (int sample = 0; sample < samples; ++sample) {
    for (int i = 0; i < width; ++i) {
      float value = 0.3F * noise[sample * width + i];
      for (int k = 0; k < directions; ++k) {
        value += hidden[sample * directions + k] * mixing[k * width + i];
      }
      inputs[sample * width + i] = value;
    }
  }
  std::vector<float> moments(static_cast<std::size_t>(width) * width);
  for (int sample = 0; sample < samples; ++sample) {
    for (int i = 0; i < width; ++i) {
      for (int k = 0; k < width; ++k) {
        moments[i * width + k] += inputs[sample * width + i] * inputs[sample * width + k];
      }
    }
  }
  return moments;
}

/// The weight [outputs, inputs] that codes of S mean.
std::vector<float> decode(const TrellisCodes& codes, const TrellisFormat& format, int rows,
                          int columns) {
  const auto words = format.words(columns / 256);
  const auto matrix = kernels::pack_trellis(
      {"w.weight", arrays::StorageType::u32, {rows, words}, std::as_bytes(std::span(codes.words))},
      {"w.scales", arrays::StorageType::f16, {rows}, std::as_bytes(std::span(codes.scales))},
      format);
  auto weight = mlx::core::contiguous(kernels::expand_trellis(matrix, mlx::core::float32));
  weight.eval();
  return {weight.data<float>(), weight.data<float>() + weight.size()};
}

/// trace(E H E^T), the square error of the outputs.
double output_error(const std::vector<float>& error, const std::vector<float>& moments, int outputs,
                    int inputs) {
  double sum = 0;
  for (int row = 0; row < outputs; ++row) {
    const float* e = error.data() + row * inputs;
    for (int i = 0; i < inputs; ++i) {
      double product = 0;
      for (int k = 0; k < inputs; ++k)
        product += static_cast<double>(moments[i * inputs + k]) * e[k];
      sum += product * e[i];
    }
  }
  return sum;
}

class FeedbackAlong : public testing::TestWithParam<int> {};

TEST_P(FeedbackAlong, OutputsAreCloserThanWithout) {
  const TrellisFormat format{.bits = 3, .axis = GetParam()};
  const int outputs = format.axis == 1 ? 24 : 256;
  const int inputs = format.axis == 1 ? 768 : 40;
  const auto moments = correlated_moments(inputs);
  const auto weight = gaussians(outputs * inputs, 1);
  std::vector<float> stored = weight;
  for (int i = 0; format.axis == 0 && i < outputs * inputs; ++i) {
    stored[i] = weight[i % outputs * inputs + i / outputs];
  }
  const int rows = format.axis == 1 ? outputs : inputs;
  const int columns = format.axis == 1 ? inputs : outputs;
  const auto factor = factor_moments(moments, inputs, feedback_block(format));
  ASSERT_TRUE(factor);
  const auto error_of = [&](const TrellisCodes& codes) {
    std::vector<float> error = decode(codes, format, rows, columns);
    for (std::size_t i = 0; i < error.size(); ++i) error[i] -= weight[i];
    return output_error(error, moments, outputs, inputs);
  };
  const auto plain = encode_trellis(stored.data(), rows, columns, format, TrellisScale::refitted);
  const auto fed = encode_trellis_with_feedback(stored.data(), rows, columns, format,
                                                TrellisScale::refitted, *factor);
  ASSERT_TRUE(fed);
  EXPECT_LT(error_of(*fed), 0.9 * error_of(plain));
}

INSTANTIATE_TEST_SUITE_P(InputsAndOutputs, FeedbackAlong, testing::Values(1, 0));

TEST(FactorMoments, IsLowerTimesBlocksTimesItsTranspose) {
  constexpr int inputs = 150;  // more than two panels of the factorization
  constexpr int block = 16;
  const auto moments = correlated_moments(inputs);
  const auto factor = factor_moments(moments, inputs, block);
  ASSERT_TRUE(factor);
  double mean = 0;
  for (int i = 0; i < inputs; ++i) mean += moments[i * inputs + i] / inputs;
  const auto damped = [&](int i, int k) {
    return moments[i * inputs + k] / mean + (i == k ? 0.01 : 0.0);
  };
  // H with the factor's L taken off on both sides, from the first block on, leaves blocks on the
  // diagonal alone.
  std::vector<double> left(inputs * inputs);
  for (int i = 0; i < inputs; ++i) {
    for (int k = 0; k < inputs; ++k) left[i * inputs + k] = damped(i, k);
  }
  const auto lower = [&](int i, int k) { return factor->lower[i * inputs + k]; };
  for (int first = 0; first + block <= inputs; first += block) {
    const std::vector<double> before = left;
    for (int i = first + block; i < inputs; ++i) {
      for (int k = 0; k < inputs; ++k) {
        for (int j = first; j < first + block && i / block > first / block; ++j) {
          left[i * inputs + k] -= lower(i, j) * before[j * inputs + k];
        }
      }
    }
  }
  for (int i = 0; i < inputs; ++i) {
    for (int k = 0; k < i / block * block; ++k) {
      EXPECT_NEAR(left[i * inputs + k], 0, 2e-3) << i << " " << k;
    }
  }
}

TEST(FactorMoments, FallsBack) {
  constexpr int inputs = 32;
  std::vector<float> moments(inputs * inputs);
  EXPECT_FALSE(factor_moments(moments, inputs, 16));  // no input was seen
  moments[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(factor_moments(moments, inputs, 16));
  // Not positive definite even with 0.01 added, as moments that lost precision may be.
  for (int i = 0; i < inputs; ++i) {
    for (int k = 0; k < inputs; ++k) moments[i * inputs + k] = i == k ? 1.0F : 1.05F;
  }
  EXPECT_TRUE(factor_moments(moments, inputs, 16));
}

TEST(EncodeWithFeedback, GivesUpWhereItOutgrowsTheWeights) {
  constexpr int inputs = 512;
  const auto weight = gaussians(inputs, 3);
  FeedbackFactor factor{inputs, 256, std::vector<float>(inputs * inputs, 1e4F),
                        std::vector<float>(inputs, 1.0F)};
  EXPECT_FALSE(encode_trellis_with_feedback(weight.data(), 1, inputs, {.bits = 3},
                                            TrellisScale::refitted, factor));
}

}  // namespace
}  // namespace espalier::quantization
