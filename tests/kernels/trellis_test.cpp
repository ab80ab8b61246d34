#include "kernels/trellis.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/cpu_features.h"
#include "kernels/linear.h"
#include "support/fixtures.h"

namespace espalier {
namespace {

namespace mx = mlx::core;
using arrays::StorageType;
using arrays::TensorView;
using kernels::InstructionSet;
using kernels::TrellisActivations;
using kernels::TrellisFormat;
using kernels::TrellisMatrix;
using nlohmann::json;

constexpr InstructionSet all_sets[] = {InstructionSet::scalar, InstructionSet::avx2,
                                       InstructionSet::avx512};

std::uint32_t from_hex(const json& text) {
  return static_cast<std::uint32_t>(std::stoul(text.get<std::string>(), nullptr, 16));
}

/// A coded matrix as a file would hold it.
struct CodedMatrix {
  std::vector<std::int64_t> shape;
  std::vector<std::uint32_t> codes;
  std::vector<std::uint16_t> scales;

  TensorView codes_view() const {
    return {"w.weight", StorageType::u32, shape, std::as_bytes(std::span(codes))};
  }
  TensorView scales_view() const {
    return {"w.scales",
            StorageType::f16,
            {static_cast<std::int64_t>(scales.size())},
            std::as_bytes(std::span(scales))};
  }
  TrellisMatrix pack(const TrellisFormat& format) const {
    return kernels::pack_trellis(codes_view(), scales_view(), format);
  }
};

CodedMatrix random_codes(const TrellisFormat& format, int rows, int columns, unsigned seed) {
  std::mt19937 random(seed);
  CodedMatrix matrix;
  const auto words = static_cast<int>(format.words(columns / kernels::trellis_block_weights));
  matrix.shape = {rows, words};
  for (int i = 0; i < rows * words; ++i) {
    matrix.codes.push_back(random());
  }
  for (int i = 0; i < rows; ++i) {
    matrix.scales.push_back(static_cast<std::uint16_t>(0x2000 + random() % 0x0C00));
  }
  return matrix;
}

std::vector<float> random_row(int size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

std::vector<float> values_of(mx::array array) {
  mx::eval(array);
  return {array.data<float>(), array.data<float>() + array.size()};
}

mx::array to_rows(const std::vector<float>& values, int rows) {
  return mx::array(values.begin(), {rows, static_cast<int>(values.size()) / rows}, mx::float32);
}

/// Root of the mean square of the difference over that of `expected`.
double distance(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::pow(got[i] - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  return std::sqrt(error / size);
}

TEST(Trellis, StatesAndByteSumsAreTheFormats) {
  const kernels::TrellisHash hash = kernels::trellis_hash(kernels::TrellisCode::one_mad);
  const int expected[] = {-185, -124, -63, -2, 59, -135, -74, -13};
  for (std::uint32_t state = 0; state < 8; ++state) {
    EXPECT_EQ(kernels::trellis_byte_sum(hash, state), expected[state]);
  }
  EXPECT_EQ(kernels::trellis_byte_sum(hash, 1234), 110);
  EXPECT_EQ(kernels::trellis_byte_sum(hash, 4095), 188);
}

class TrellisSets : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (!kernels::supports(GetParam())) {
      GTEST_SKIP() << "this processor lacks " << kernels::to_string(GetParam());
    }
    kernels::force_instruction_set(GetParam());
  }
  void TearDown() override { kernels::force_instruction_set({}); }
};

/// The golden input stands in row `rows / 2` among random ones.
void expect_golden(const json& test, TrellisActivations activations, int rows) {
  CodedMatrix matrix;
  matrix.shape = test["shape"].get<std::vector<std::int64_t>>();
  for (const json& word : test["codes"]) {
    matrix.codes.push_back(from_hex(word));
  }
  for (const json& scale : test["scales_f16"]) {
    matrix.scales.push_back(static_cast<std::uint16_t>(from_hex(scale)));
  }
  const TrellisMatrix packed =
      matrix.pack({.bits = test["K"].get<int>(), .axis = test["axis"].get<int>()});
  std::vector<float> x = random_row(packed.columns * rows, 7);
  for (int i = 0; i < packed.columns; ++i) {
    x[rows / 2 * packed.columns + i] = std::bit_cast<float>(from_hex(test["input_f32"][i]));
  }
  const std::vector<float> y =
      values_of(kernels::trellis_linear(to_rows(x, rows), packed, activations));
  const json& expected =
      test[activations == TrellisActivations::int15 ? "integer_15" : "integer_8"];
  const int first = test["outputs"][0].get<int>();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y[rows / 2 * packed.rows + first + i]),
              from_hex(expected[i]))
        << "bits " << test["K"] << " axis " << test["axis"] << " rows " << rows << " output " << i;
  }
}

TEST_P(TrellisSets, IntegerContractGivesTheGoldenBits) {
  const auto shared = tests::shared_folder();
  if (!shared) {
    GTEST_SKIP() << "the reference data is not there";
  }
  const json golden = json::parse(std::ifstream(*shared / "fixtures/trellis/golden.json"));
  for (const json& test : golden["cases"]) {
    for (const int rows : {1, 2, 3, 4, 5, 6, 13}) {
      expect_golden(test, TrellisActivations::int15, rows);
      expect_golden(test, TrellisActivations::int8, rows);
    }
  }
}

TEST_P(TrellisSets, RowsDependOnThemselvesAlone) {
  const auto x = random_row(33 * 512, 3);
  for (const int axis : {0, 1}) {
    const TrellisFormat format{.bits = 3, .axis = axis};
    const TrellisMatrix packed = random_codes(format, axis == 1 ? 70 : 512, 512, 5).pack(format);
    const std::vector<float> together =
        values_of(kernels::trellis_linear(to_rows(x, 33), packed, TrellisActivations::int15));
    for (int row = 0; row < 33; ++row) {
      const std::vector<float> own(x.begin() + row * 512, x.begin() + (row + 1) * 512);
      const std::vector<float> alone =
          values_of(kernels::trellis_linear(to_rows(own, 1), packed, TrellisActivations::int15));
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + row * packed.rows))
          << "axis " << axis << " row " << row;
    }
  }
}

TEST_P(TrellisSets, AgreesWithTheExpandedWeight) {
  for (const auto code : {kernels::TrellisCode::one_mad, kernels::TrellisCode::mul1}) {
    for (const int state_bits : {12, 16}) {
      for (const int axis : {0, 1}) {
        const TrellisFormat format{.bits = 4, .state_bits = state_bits, .code = code, .axis = axis};
        const TrellisMatrix packed =
            random_codes(format, axis == 1 ? 37 : 300, axis == 1 ? 768 : 256, 9).pack(format);
        for (const int rows : {1, 7}) {
          const auto x = to_rows(random_row(rows * packed.columns, 11), rows);
          const auto got = values_of(kernels::trellis_linear(x, packed, TrellisActivations::int15));
          const auto expected = values_of(kernels::trellis_linear_ops(x, packed));
          EXPECT_LT(distance(got, expected), 1e-4);
        }
      }
    }
  }
}

TEST_P(TrellisSets, SumsOfTheLargestIntegersFit) {
  // All integers are the largest there are, and all weights of a matrix one number.
  for (const int axis : {0, 1}) {
    for (const std::uint32_t word : {0U, ~0U}) {
      const TrellisFormat format{.bits = 3, .axis = axis};
      CodedMatrix matrix = random_codes(format, axis == 1 ? 70 : 512, 512, 5);
      std::fill(matrix.codes.begin(), matrix.codes.end(), word);
      const TrellisMatrix packed = matrix.pack(format);
      for (const int rows : {1, 7}) {
        for (const float value : {1.0F, -1.0F}) {
          const auto x = to_rows(std::vector<float>(rows * packed.columns, value), rows);
          const auto expected = values_of(kernels::trellis_linear_ops(x, packed));
          for (const auto activations : {TrellisActivations::int8, TrellisActivations::int15}) {
            const auto got = values_of(kernels::trellis_linear(x, packed, activations));
            EXPECT_LT(distance(got, expected), 1e-4) << "axis " << axis << " rows " << rows;
          }
        }
      }
    }
  }
}

TEST_P(TrellisSets, TrellisBlocksMayDifferByOneBit) {
  for (const int bits : {2, 3}) {
    for (const int axis : {0, 1}) {
      const TrellisFormat format{.bits = bits, .axis = axis, .half_bit = true};
      const TrellisMatrix packed =
          random_codes(format, axis == 1 ? 37 : 300, axis == 1 ? 768 : 1280, 9).pack(format);
      for (const int rows : {1, 7}) {
        const auto x = to_rows(random_row(rows * packed.columns, 11), rows);
        const auto got = values_of(kernels::trellis_linear(x, packed, TrellisActivations::int15));
        EXPECT_LT(distance(got, values_of(kernels::trellis_linear_ops(x, packed))), 1e-4);
      }
    }
  }
}

/// A norm, gate and residual around matrices coded along both dimensions and one in floats.
TEST_P(TrellisSets, TakesWhatSurroundsProducts) {
  constexpr int inputs = 512;
  constexpr int outputs = 256;
  const auto coded = [&](int axis, int bits) {
    const TrellisFormat format{.bits = bits, .axis = axis};
    return kernels::pack(
        random_codes(format, axis == 1 ? outputs : inputs, axis == 1 ? inputs : outputs, bits)
            .pack(format));
  };
  const auto values = random_row(outputs * inputs, 2);
  const kernels::PackedMatrix plain = kernels::pack(
      {"plain", StorageType::f32, {outputs, inputs}, std::as_bytes(std::span(values))});
  for (const auto& pair : {std::vector{coded(1, 3), coded(1, 2)},
                           {coded(0, 4), coded(1, 3)},
                           {coded(0, 2), coded(0, 3)},
                           {coded(1, 3), plain}}) {
    for (const int rows : {1, 9}) {
      const auto x = to_rows(random_row(rows * inputs, 3), rows);
      kernels::LinearOptions options{
          .norm = kernels::RmsNorm{.weight = mx::full({inputs}, 0.5F), .eps = 1e-5F},
          .bias = to_rows(random_row(2 * outputs, 4), 1)};
      const auto check = [&] {
        const auto got = values_of(kernels::linear(x, pair, options));
        EXPECT_LT(distance(got, values_of(kernels::linear_ops(x, pair, options))), 1e-3);
        EXPECT_EQ(got, values_of(kernels::linear_now(x, pair, options)));
        options.activations = kernels::ActivationFormat::f32;
        EXPECT_LT(distance(values_of(kernels::linear(x, pair, options)),
                           values_of(kernels::linear_ops(x, pair, options))),
                  1e-5);
        options.activations.reset();
      };
      check();
      options.gate = kernels::Gate::silu;
      options.residual = to_rows(random_row(rows * outputs, 5), rows);
      check();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TrellisSets, testing::ValuesIn(all_sets), [](const auto& info) {
  return std::string(kernels::to_string(info.param));
});

TEST(Trellis, ExactValuesTimesScaleMatchTheReferenceSums) {
  const auto shared = tests::shared_folder();
  if (!shared) {
    GTEST_SKIP() << "the reference data is not there";
  }
  const json golden = json::parse(std::ifstream(*shared / "fixtures/trellis/golden.json"));
  for (const json& test : golden["cases"]) {
    CodedMatrix matrix;
    matrix.shape = test["shape"].get<std::vector<std::int64_t>>();
    for (const json& word : test["codes"]) {
      matrix.codes.push_back(from_hex(word));
    }
    for (const json& scale : test["scales_f16"]) {
      matrix.scales.push_back(static_cast<std::uint16_t>(from_hex(scale)));
    }
    const TrellisMatrix packed =
        matrix.pack({.bits = test["K"].get<int>(), .axis = test["axis"].get<int>()});
    const std::vector<float> weight =
        values_of(mx::astype(kernels::expand_trellis(packed, mx::bfloat16), mx::float32));
    const json& expected = test["exact_prefill_f64"];
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::size_t row = test["outputs"][0].get<int>() + i;
      double sum = 0;
      double magnitude = 0;
      for (int k = 0; k < packed.columns; ++k) {
        const double product = static_cast<double>(weight[row * packed.columns + k]) *
                               std::bit_cast<float>(from_hex(test["input_f32"][k]));
        sum += product;
        magnitude += std::abs(product);
      }
      EXPECT_NEAR(sum, expected[i].get<double>(), 1e-12 * magnitude);
    }
  }
}

// The sums of the wide contract, in f32 and rounded once.
TEST(Trellis, ReferenceContractOfManyRowsGivesTheReferenceSums) {
  const auto shared = tests::shared_folder();
  if (!shared) {
    GTEST_SKIP() << "the reference data is not there";
  }
  const json golden = json::parse(std::ifstream(*shared / "fixtures/trellis/golden.json"));
  for (const json& test : golden["cases"]) {
    CodedMatrix coded;
    coded.shape = test["shape"].get<std::vector<std::int64_t>>();
    for (const json& word : test["codes"]) {
      coded.codes.push_back(from_hex(word));
    }
    for (const json& scale : test["scales_f16"]) {
      coded.scales.push_back(static_cast<std::uint16_t>(from_hex(scale)));
    }
    TrellisMatrix matrix =
        coded.pack({.bits = test["K"].get<int>(), .axis = test["axis"].get<int>()});
    matrix.contract = kernels::TrellisContract::reference;
    constexpr int rows = 5;
    std::vector<float> x = random_row(matrix.columns * rows, 7);
    for (int i = 0; i < matrix.columns; ++i) {
      x[i] = std::bit_cast<float>(from_hex(test["input_f32"][i]));
    }
    const auto weight =
        values_of(mx::abs(mx::astype(kernels::expand_trellis(matrix, mx::bfloat16), mx::float32)));
    const auto got = values_of(mx::astype(
        kernels::linear(mx::astype(to_rows(x, rows), mx::bfloat16), {kernels::pack(matrix)}),
        mx::float32));
    const json& expected = test["exact_prefill_f64"];
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::size_t row = test["outputs"][0].get<int>() + i;
      double magnitude = 0;
      for (int k = 0; k < matrix.columns; ++k) {
        magnitude += std::abs(weight[row * matrix.columns + k] * x[k]);
      }
      const auto sum = expected[i].get<double>();
      EXPECT_NEAR(got[row], sum, std::abs(sum) / 256 + 1e-6 * magnitude);
    }
  }
}

TEST(Trellis, RefusesWhatDoesNotFit) {
  const TrellisFormat format{.bits = 3, .axis = 1};
  CodedMatrix matrix = random_codes(format, 4, 256, 1);
  EXPECT_THROW(matrix.pack({.bits = 5}), base::LoadError);
  EXPECT_THROW(matrix.pack({.bits = 3, .state_bits = 11}), base::LoadError);
  EXPECT_THROW(matrix.pack({.bits = 4}), base::LoadError);
  matrix.scales.pop_back();
  EXPECT_THROW(matrix.pack(format), base::LoadError);
  CodedMatrix interleaved = random_codes({.bits = 3}, 2, 512, 1);
  interleaved.shape = {1, 2, 48};
  EXPECT_THROW(interleaved.pack({.bits = 3, .axis = 1}), base::LoadError);
}

}  // namespace
}  // namespace espalier
