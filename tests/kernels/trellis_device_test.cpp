#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/trellis_cuda.h"
#include "kernels/trellis_metal.h"

namespace espalier {
namespace {

namespace mx = mlx::core;
using arrays::StorageType;
using arrays::TensorView;
using kernels::TrellisActivations;
using kernels::TrellisFormat;
using kernels::TrellisMatrix;

/// A matrix of random codes, kept as a file would hold it.
struct RandomMatrix {
  std::vector<std::uint32_t> codes;
  std::vector<std::uint16_t> scales;
  TrellisMatrix packed;

  static RandomMatrix make(const TrellisFormat& format, int rows, int columns) {
    std::mt19937 random(7);
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(rows) * columns * format.bits / 32);
    std::vector<std::uint16_t> scales(rows);
    for (auto& word : codes) {
      word = random();
    }
    for (auto& scale : scales) {
      scale = static_cast<std::uint16_t>(0x2000 + random() % 0x0C00);
    }
    const TensorView codes_view{"w.weight",
                                StorageType::u32,
                                {rows, columns * format.bits / 32},
                                std::as_bytes(std::span(codes))};
    const TensorView scales_view{
        "w.scales", StorageType::f16, {rows}, std::as_bytes(std::span(scales))};
    return {codes, scales, kernels::pack_trellis(codes_view, scales_view, format)};
  }
};

mx::array random_rows(int rows, int columns) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(rows) * columns);
  for (float& value : values) {
    value = normal(random);
  }
  values[columns / 2] *= 50;
  return mx::array(values.begin(), {rows, columns}, mx::float32);
}

std::vector<std::uint32_t> bits_of(mx::array values) {
  values = mx::contiguous(mx::astype(values, mx::float32), false, mx::Device::cpu);
  mx::eval(values);
  std::vector<std::uint32_t> bits;
  for (std::size_t i = 0; i < values.size(); ++i) {
    bits.push_back(std::bit_cast<std::uint32_t>(values.data<float>()[i]));
  }
  return bits;
}

double relative_error(const std::vector<std::uint32_t>& bits,
                      const std::vector<std::uint32_t>& expected_bits) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const double expected = std::bit_cast<float>(expected_bits[i]);
    error += std::pow(std::bit_cast<float>(bits[i]) - expected, 2);
    size += expected * expected;
  }
  return std::sqrt(error / size);
}

/// `trellis_linear` by the CPU's kernels: by default it would run on the device itself.
std::vector<std::uint32_t> bits_on_cpu(const mx::array& x, const TrellisMatrix& weight,
                                       TrellisActivations activations) {
  const mx::Device before = mx::default_device();
  mx::set_default_device(mx::Device::cpu);
  const mx::array result = kernels::trellis_linear(x, weight, activations);
  mx::set_default_device(before);
  return bits_of(result);
}

using Linear = mx::array (*)(const mx::array&, const TrellisMatrix&, TrellisActivations);
using Expand = mx::array (*)(const TrellisMatrix&, mx::Dtype);

/// The device's results beside those of the CPU kernels, which the reference's vectors hold.
/// Devices compile a kernel for each case when it is first used.
void expect_bits_of_cpu(Linear linear, Expand expand) {
  for (const int axis : {1, 0}) {
    for (const int bits : {3, 2, 4}) {
      const TrellisFormat format{.bits = bits, .axis = axis};
      const RandomMatrix matrix = RandomMatrix::make(format, axis == 1 ? 300 : 576, 768);
      const bool all = bits == 3;
      for (const int rows : all ? std::vector{1, 3, 5, 17, 40, 200} : std::vector{1, 3, 40}) {
        const mx::array x = random_rows(rows, matrix.packed.columns);
        for (const auto activations : {TrellisActivations::int15, TrellisActivations::int8}) {
          EXPECT_EQ(bits_of(linear(x, matrix.packed, activations)),
                    bits_on_cpu(x, matrix.packed, activations))
              << "bits " << bits << " axis " << axis << " rows " << rows;
        }
      }
      for (const auto dtype : {mx::float32, mx::bfloat16, mx::float16}) {
        if (all || dtype == mx::bfloat16) {
          EXPECT_EQ(bits_of(expand(matrix.packed, dtype)),
                    bits_of(kernels::expand_trellis(matrix.packed, dtype)));
        }
      }
    }
  }
}

TEST(TrellisCuda, GivesTheBitsOfTheCpu) {
  if (!kernels::has_cuda()) {
    GTEST_SKIP() << "MLX has no CUDA device here";
  }
  expect_bits_of_cpu(kernels::trellis_linear_cuda, kernels::expand_trellis_cuda);
}

TEST(TrellisCuda, LongStatesAndTheOtherCodeGiveTheBitsOfTheCpu) {
  if (!kernels::has_cuda()) {
    GTEST_SKIP() << "MLX has no CUDA device here";
  }
  for (const int axis : {1, 0}) {
    const TrellisFormat format{
        .bits = 3, .state_bits = 16, .code = kernels::TrellisCode::mul1, .axis = axis};
    const RandomMatrix matrix = RandomMatrix::make(format, axis == 1 ? 70 : 300, 512);
    for (const int rows : {1, 9, 100}) {
      const mx::array x = random_rows(rows, matrix.packed.columns);
      EXPECT_EQ(bits_of(kernels::trellis_linear_cuda(x, matrix.packed, TrellisActivations::int15)),
                bits_on_cpu(x, matrix.packed, TrellisActivations::int15));
    }
  }
}

// So many outputs and rows take the tiles of most columns, for whose codes there is less memory.
TEST(TrellisCuda, LargeTilesGiveTheBitsOfTheCpu) {
  if (!kernels::has_cuda()) {
    GTEST_SKIP() << "MLX has no CUDA device here";
  }
  for (const int axis : {1, 0}) {
    const TrellisFormat format{.bits = 4, .axis = axis};
    const RandomMatrix matrix =
        axis == 1 ? RandomMatrix::make(format, 14336, 256) : RandomMatrix::make(format, 256, 14336);
    const mx::array x = random_rows(512, matrix.packed.columns);
    EXPECT_TRUE(
        bits_of(kernels::trellis_linear_cuda(x, matrix.packed, TrellisActivations::int15)) ==
        bits_on_cpu(x, matrix.packed, TrellisActivations::int15))
        << "axis " << axis;
  }
}

// With few outputs by way of expanded weights, with many decoded in the product.
TEST(TrellisCuda, ReferenceProductsAreThoseOfRoundedWeights) {
  if (!kernels::has_cuda()) {
    GTEST_SKIP() << "MLX has no CUDA device here";
  }
  for (const int outputs : {256, 14336}) {
    for (const int axis : {1, 0}) {
      const TrellisFormat format{.bits = 4, .axis = axis};
      const RandomMatrix matrix = axis == 1 ? RandomMatrix::make(format, outputs, 512)
                                            : RandomMatrix::make(format, 512, outputs);
      const mx::array x =
          mx::astype(random_rows(256, matrix.packed.columns), mx::bfloat16, mx::Device::cpu);
      const mx::array weight = kernels::expand_trellis(matrix.packed, mx::bfloat16);
      const mx::array expected = mx::matmul(
          mx::astype(x, mx::float32, mx::Device::cpu),
          mx::transpose(mx::astype(weight, mx::float32, mx::Device::cpu), mx::Device::cpu),
          mx::Device::cpu);
      EXPECT_LT(relative_error(bits_of(kernels::trellis_linear_reference_cuda(x, matrix.packed)),
                               bits_of(expected)),
                4e-3)  // results are bf16
          << outputs << " outputs, axis " << axis;
    }
  }
}

TEST(TrellisCuda, FillsAtAnOffset) {
  if (!kernels::has_cuda()) {
    GTEST_SKIP() << "MLX has no CUDA device here";
  }
  const TrellisFormat format{.bits = 3, .axis = 0};
  constexpr int rows = 40;
  constexpr int columns = 512;
  const RandomMatrix matrix = RandomMatrix::make(format, rows, columns);
  // [rows, 2 pairs of words] to [pairs, rows, words]: the same codes, interleaved.
  std::vector<std::uint32_t> pairs(matrix.codes.begin(), matrix.codes.end());
  const mx::array plain(matrix.codes.begin(), {rows, 48}, mx::uint32);
  const mx::array interleaved(pairs.begin(), {1, rows, 48}, mx::uint32);
  constexpr int offset = 64;
  const mx::array expected = mx::concatenate(
      {mx::zeros({offset}, mx::float16),
       mx::reshape(mx::transpose(kernels::expand_trellis(matrix.packed, mx::float16)),
                   {rows * columns}),
       mx::zeros({8}, mx::float16)});
  for (const mx::array& codes : {plain, interleaved}) {
    EXPECT_EQ(bits_of(kernels::fill_trellis_cuda(codes, matrix.packed.scales, format, offset,
                                                 offset + rows * columns + 8)),
              bits_of(expected));
  }
}

TEST(TrellisMetal, GivesTheBitsOfTheCpu) {
  if (!kernels::has_metal()) {
    GTEST_SKIP() << "MLX has no Metal device here";
  }
  expect_bits_of_cpu(kernels::trellis_linear_metal, kernels::expand_trellis_metal);
}

TEST(TrellisDevices, SayThatThereIsNone) {
  const RandomMatrix matrix = RandomMatrix::make({.bits = 3, .axis = 1}, 4, 256);
  const mx::array x = random_rows(1, 256);
  if (!kernels::has_cuda()) {
    EXPECT_THROW(kernels::trellis_linear_cuda(x, matrix.packed, TrellisActivations::int8),
                 base::UsageError);
    EXPECT_THROW(kernels::trellis_linear_reference_cuda(x, matrix.packed), base::UsageError);
    EXPECT_THROW(kernels::expand_trellis_cuda(matrix.packed, mx::float16), base::UsageError);
  }
  if (!kernels::has_metal()) {
    EXPECT_THROW(kernels::trellis_linear_metal(x, matrix.packed, TrellisActivations::int8),
                 base::UsageError);
  }
}

}  // namespace
}  // namespace espalier
