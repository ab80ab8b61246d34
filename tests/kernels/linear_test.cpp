#include "kernels/linear.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/linear_results.h"
#include "kernels/packed_weights.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;
using arrays::StorageType;
using tests::bytes_of;
using tests::ForcedInstructionSet;
using tests::linear_results;
using tests::random_rows;
using tests::random_weight;

struct GgufBlock {
  StorageType type;
  std::vector<std::uint8_t> bytes;
  std::vector<float> values;
};

const GgufBlock gguf_blocks[] = {
#include "kernels/gguf_blocks.inc"
};

const StorageType plain_types[] = {StorageType::f32, StorageType::f16, StorageType::bf16};
const StorageType quantized_types[] = {
    StorageType::q4_0,    StorageType::q4_1,    StorageType::q5_0,   StorageType::q5_1,
    StorageType::q8_0,    StorageType::q2_k,    StorageType::q3_k,   StorageType::q4_k,
    StorageType::q5_k,    StorageType::q6_k,    StorageType::q8_k,   StorageType::iq1_s,
    StorageType::iq1_m,   StorageType::iq2_xxs, StorageType::iq2_xs, StorageType::iq2_s,
    StorageType::iq3_xxs, StorageType::iq3_s,   StorageType::iq4_nl, StorageType::iq4_xs,
    StorageType::tq1_0,   StorageType::tq2_0,   StorageType::mxfp4,  StorageType::nvfp4};
const std::vector<StorageType> all_types = [] {
  std::vector<StorageType> types(std::begin(quantized_types), std::end(quantized_types));
  for (const auto type : plain_types) {
    types.push_back(type);
  }
  return types;
}();

std::string name_of(StorageType type) { return std::string(arrays::storage_traits(type).name); }

/// A number of columns that the type allows and no vector width divides twice.
int columns_of(StorageType type) {
  const int elements = arrays::storage_traits(type).elements;
  return elements == 1 ? 83 : elements == 32 ? 160 : elements == 64 ? 192 : 512;
}

std::vector<float> floats_of(const mx::array& array) {
  auto values = mx::contiguous(mx::astype(array, mx::float32));
  values.eval();
  return {values.data<float>(), values.data<float>() + values.size()};
}

/// Largest difference relative to the largest magnitude of `expected`.
double relative_difference(const mx::array& actual, const mx::array& expected) {
  const auto a = floats_of(actual);
  const auto e = floats_of(expected);
  EXPECT_EQ(a.size(), e.size());
  double difference = 0;
  double magnitude = 1e-30;
  for (std::size_t i = 0; i < e.size(); ++i) {
    EXPECT_TRUE(std::isfinite(a[i]));
    difference = std::max(difference, std::abs(double{a[i]} - e[i]));
    magnitude = std::max(magnitude, std::abs(double{e[i]}));
  }
  return difference / magnitude;
}

double tolerance(mx::Dtype dtype) {
  return dtype == mx::float32 ? 2e-6 : dtype == mx::float16 ? 1e-3 : 8e-3;
}

/// x as integer activations see it: each 32 values rounded to 1/`limit` of their largest magnitude.
mx::array rounded_to_integers(const mx::array& x, float limit) {
  auto values = floats_of(x);
  for (std::size_t first = 0; first < values.size(); first += 32) {
    float largest = 0;
    for (int i = 0; i < 32; ++i) {
      largest = std::max(largest, std::abs(values[first + i]));
    }
    for (int i = 0; i < 32 && largest > 0; ++i) {
      float& value = values[first + i];
      value = std::nearbyint(value * (limit / largest)) * (largest / limit);
    }
  }
  return mx::array(values.data(), x.shape(), mx::float32);
}

TEST(Pack, UnpacksToTheValuesOfTheFormat) {
  for (const auto& block : gguf_blocks) {
    const auto bytes = std::as_bytes(std::span(block.bytes));
    const int columns = static_cast<int>(block.values.size());
    const auto packed = pack({"block", block.type, {1, columns}, bytes});
    for (const auto set : tests::supported_sets()) {
      const ForcedInstructionSet forced(set);
      EXPECT_EQ(floats_of(unpack(packed)), block.values)
          << name_of(block.type) << ' ' << to_string(set);
    }
  }
}

TEST(Pack, KeepsPlainValues) {
  for (const auto type : plain_types) {
    const auto weight = random_weight(type, 37, 83, 1);
    const auto dtype = type == StorageType::f32   ? mx::float32
                       : type == StorageType::f16 ? mx::float16
                                                  : mx::bfloat16;
    const auto* bytes = reinterpret_cast<const char*>(weight.bytes.data());
    mx::array expected(mx::allocator::malloc(weight.bytes.size()), {37, 83}, dtype);
    std::copy(bytes, bytes + weight.bytes.size(), expected.data<char>());
    EXPECT_EQ(floats_of(unpack(pack(weight.view))), floats_of(expected)) << name_of(type);
  }
}

TEST(Pack, RefusesWhatDoesNotFitAndNamesIt) {
  const std::vector<std::byte> bytes(64);
  const auto message = [&](StorageType type, std::vector<std::int64_t> shape) -> std::string {
    try {
      pack({"blk.0.attn_q.weight", type, std::move(shape), bytes});
    } catch (const base::LoadError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message(StorageType::q8_1, {1, 32}), testing::HasSubstr("blk.0.attn_q.weight"));
  EXPECT_THAT(message(StorageType::f32, {16}), testing::HasSubstr("two dimensions"));
  EXPECT_THAT(message(StorageType::q4_0, {1, 33}), testing::HasSubstr("multiple of 32"));
  EXPECT_FALSE(can_pack(StorageType::i32));
}

TEST(Pack, NeedsLittleMoreMemoryThanTheFile) {
  // Grid indices become a code for each value, digits 2 bits: what docs/formats.md says they cost.
  const std::map<StorageType, double> costs = {
      {StorageType::iq1_s, 2.29},  {StorageType::iq1_m, 2.04}, {StorageType::iq2_xxs, 1.73},
      {StorageType::iq2_xs, 1.55}, {StorageType::iq2_s, 1.4},  {StorageType::iq3_xxs, 1.5},
      {StorageType::iq3_s, 1.33},  {StorageType::tq1_0, 1.23}};
  for (const auto type : all_types) {
    const auto weight = random_weight(type, 64, 1024, 2);
    const auto cost = costs.find(type);
    EXPECT_LE(static_cast<double>(pack(weight.view).data.nbytes()),
              (cost == costs.end() ? 1.08 : cost->second) * weight.bytes.size())
        << name_of(type);
  }
}

TEST(Linear, IntegerActivationsEqualTheirDefinition) {
  LinearOptions options;
  for (const auto type : quantized_types) {
    const auto weight = random_weight(type, 50, columns_of(type), 3);
    const auto packed = pack(weight.view);
    const auto x = random_rows(5, packed.columns, 4);
    options.activations = ActivationFormat::int8;
    EXPECT_LT(relative_difference(linear(x, {packed}, options),
                                  linear_ops(rounded_to_integers(x, 127.0F), {packed})),
              2e-6)
        << name_of(type);
    options.activations = ActivationFormat::int15;
    EXPECT_LT(relative_difference(linear(x, {packed}, options),
                                  linear_ops(rounded_to_integers(x, 32512.0F), {packed})),
              2e-6)
        << name_of(type);
  }
}

TEST(Linear, ActivationFormatsErrAsDocumented) {
  // docs/formats.md: standard deviation of the error over that of the output.
  const std::map<ActivationFormat, double> errors = {{ActivationFormat::int8, 6e-3},
                                                     {ActivationFormat::int15, 3e-5},
                                                     {ActivationFormat::f32, 1e-6}};
  const auto packed = pack(random_weight(StorageType::q6_k, 64, 1024, 40).view);
  const auto x = random_rows(64, 1024, 41);
  const auto expected = floats_of(linear_ops(x, {packed}));
  for (const auto& [format, documented] : errors) {
    LinearOptions options;
    options.activations = format;
    const auto actual = floats_of(linear(x, {packed}, options));
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      difference += std::pow(double{actual[i]} - expected[i], 2);
      size += std::pow(double{expected[i]}, 2);
    }
    const double error = std::sqrt(difference / size);
    std::printf("activations %d: error %.2g\n", static_cast<int>(format), error);
    EXPECT_LT(error, 1.2 * documented);
    if (format != ActivationFormat::f32) {
      EXPECT_GT(error, 0.5 * documented);
    }
  }
}

TEST(Linear, F32ActivationsEqualPlainOperations) {
  LinearOptions options;
  options.activations = ActivationFormat::f32;
  for (const auto type : all_types) {
    for (const auto dtype : {mx::float32, mx::float16, mx::bfloat16}) {
      const auto weight = random_weight(type, 50, columns_of(type), 5);
      const auto packed = pack(weight.view);
      const auto x = random_rows(9, packed.columns, 6, dtype);
      EXPECT_LT(relative_difference(linear(x, {packed}, options), linear_ops(x, {packed}, options)),
                tolerance(dtype))
          << name_of(type);
    }
  }
}

/// All options that go together, for matrices of 50 and 34 rows.
std::vector<LinearOptions> option_sets(int rows, int columns, mx::Dtype dtype) {
  const RmsNorm norm{mx::reshape(random_rows(1, columns, 7), {columns}), 1e-5F};
  std::vector<LinearOptions> sets(3);
  sets[1].norm = norm;
  sets[1].bias = mx::reshape(random_rows(1, 84, 8), {84});
  sets[1].residual = random_rows(rows, 84, 9, dtype);
  sets[2].norm = norm;
  sets[2].activations = ActivationFormat::f32;
  return sets;
}

TEST(Linear, FusedOptionsEqualPlainOperations) {
  for (const auto type : {StorageType::q4_1, StorageType::f16}) {
    for (const auto dtype : {mx::float32, mx::float16, mx::bfloat16}) {
      const auto a = pack(random_weight(type, 50, 160, 10).view);
      const auto b = pack(random_weight(type, 34, 160, 11).view);
      const auto x = random_rows(7, 160, 12, dtype);
      for (auto options : option_sets(7, 160, dtype)) {
        options.activations = ActivationFormat::f32;
        for (const bool f32_output : {false, true}) {
          const auto result = linear(x, {a, b}, options, f32_output);
          EXPECT_EQ(result.dtype(), f32_output ? mx::float32 : dtype);
          EXPECT_LT(relative_difference(result, linear_ops(x, {a, b}, options, f32_output)),
                    f32_output ? 4e-6 : tolerance(dtype));
        }
      }
    }
  }
}

TEST(Linear, GatesEqualPlainOperations) {
  for (const auto gate : {Gate::silu, Gate::gelu_tanh, Gate::gelu_erf, Gate::relu}) {
    LinearOptions options;
    options.gate = gate;
    options.bias = mx::reshape(random_rows(1, 100, 13), {100});
    options.activations = ActivationFormat::f32;
    const auto a = pack(random_weight(StorageType::q5_0, 50, 160, 14).view);
    const auto b = pack(random_weight(StorageType::q5_0, 50, 160, 15).view);
    const auto x = random_rows(6, 160, 16);
    EXPECT_LT(relative_difference(linear(x, {a, b}, options), linear_ops(x, {a, b}, options)),
              4e-6);
  }
}

TEST(Linear, BitsDependOnTheRowAlone) {
  for (const auto type : all_types) {
    for (const auto format :
         {ActivationFormat::int8, ActivationFormat::int15, ActivationFormat::f32}) {
      const int columns = columns_of(type);
      const auto a = pack(random_weight(type, 50, columns, 17).view);
      const auto b = pack(random_weight(type, 34, columns, 18).view);
      const auto x = random_rows(33, columns, 19);
      LinearOptions options;
      options.norm = RmsNorm{mx::reshape(random_rows(1, columns, 20), {columns}), 1e-6F};
      options.activations = format;
      const std::string expected = bytes_of(linear(x, {a, b}, options));
      const std::size_t row_bytes = expected.size() / 33;
      for (int rows = 1; rows < 33; rows += rows < 9 ? 1 : 8) {
        const auto part = mx::slice(x, {33 - rows, 0}, {33, columns});
        EXPECT_EQ(bytes_of(linear(part, {a, b}, options)), expected.substr((33 - rows) * row_bytes))
            << name_of(type) << ' ' << rows << " rows";
      }
    }
  }
}

TEST(Linear, WeightsInPlaceGiveTheSameBits) {
  const std::vector<int> rows = {1, 2, 9, 33};
  std::vector<int> order(42);
  for (int i = 0; i < 42; ++i) {
    order[i] = (i * 11 + 5) % 50;
  }
  for (const auto type : all_types) {
    auto weight =
        std::make_shared<tests::OwnedTensor>(random_weight(type, 50, columns_of(type), 39));
    const PackedMatrix packed = pack(weight->view, order);
    const std::weak_ptr<tests::OwnedTensor> held = weight;
    const arrays::TensorView view = weight->view;
    std::optional<PackedMatrix> in_place = pack(view, order, std::move(weight));
    EXPECT_EQ(in_place->packed_bytes(), 0U);
    for (const auto format :
         {ActivationFormat::int8, ActivationFormat::int15, ActivationFormat::f32}) {
      EXPECT_EQ(linear_results(*in_place, format, rows), linear_results(packed, format, rows))
          << name_of(type);
    }
    EXPECT_FALSE(held.expired());
    in_place.reset();
    EXPECT_TRUE(held.expired());
  }
}

/// A gated product of 29 rows and its bytes, by the kernels of `set` and so many threads.
std::string gated_bytes(const std::vector<PackedMatrix>& matrices, mx::Dtype dtype,
                        ActivationFormat format, InstructionSet set, int threads) {
  const int columns = matrices[0].columns;
  LinearOptions options;
  options.gate = Gate::silu;
  options.norm = RmsNorm{mx::reshape(random_rows(1, columns, 24), {columns}), 1e-6F};
  options.residual = random_rows(29, 50, 25, dtype);
  options.activations = format;
  const ForcedInstructionSet forced(set);
  base::set_compute_threads(threads);
  return bytes_of(linear(random_rows(29, columns, 23, dtype), matrices, options));
}

TEST(Linear, BitsDependNeitherOnThreadsNorOnTheInstructionSet) {
  for (const auto type : all_types) {
    const std::vector<PackedMatrix> matrices = {
        pack(random_weight(type, 50, columns_of(type), 21).view),
        pack(random_weight(type, 50, columns_of(type), 22).view)};
    for (const auto dtype : {mx::float32, mx::float16, mx::bfloat16}) {
      const auto format = dtype == mx::float32 ? ActivationFormat::int8 : ActivationFormat::int15;
      const std::string expected = gated_bytes(matrices, dtype, format, InstructionSet::scalar, 1);
      for (const auto set : tests::supported_sets()) {
        for (int threads = 1; threads <= 4; threads += 3) {
          EXPECT_EQ(gated_bytes(matrices, dtype, format, set, threads), expected)
              << name_of(type) << ' ' << to_string(set) << ' ' << threads;
        }
      }
    }
  }
  base::set_compute_threads(base::default_compute_threads());
}

TEST(Linear, F32ActivationsHaveTheSameBitsInEveryInstructionSet) {
  for (const auto type : all_types) {
    const std::vector<PackedMatrix> matrices = {
        pack(random_weight(type, 50, columns_of(type), 30).view),
        pack(random_weight(type, 50, columns_of(type), 31).view)};
    const auto bytes = [&](InstructionSet set) {
      return gated_bytes(matrices, mx::float32, ActivationFormat::f32, set, 1);
    };
    const std::string expected = bytes(tests::supported_sets().back());
    for (const auto set : tests::supported_sets()) {
      EXPECT_EQ(bytes(set), expected) << name_of(type) << ' ' << to_string(set);
    }
  }
  base::set_compute_threads(base::default_compute_threads());
}

TEST(Linear, GatesHaveTheSameBitsInEveryInstructionSet) {
  const auto a = pack(random_weight(StorageType::f32, 40, 64, 26).view);
  const auto b = pack(random_weight(StorageType::f32, 40, 64, 27).view);
  const auto x = random_rows(20, 64, 28);
  for (const auto gate : {Gate::silu, Gate::gelu_tanh, Gate::gelu_erf, Gate::relu}) {
    LinearOptions options;
    options.gate = gate;
    std::string expected;
    for (const auto set : tests::supported_sets()) {
      const ForcedInstructionSet forced(set);
      const std::string bytes = bytes_of(linear(x, {a, b}, options));
      if (expected.empty()) expected = bytes;
      EXPECT_EQ(bytes, expected) << to_string(set);
    }
  }
}

TEST(Linear, PassesOnNotANumberAndTakesZeros) {
  const auto packed = pack(random_weight(StorageType::q4_1, 16, 64, 29).view);
  std::vector<float> values(2 * 64, 0.0F);
  values[64 + 40] = std::nanf("");
  for (const auto set : tests::supported_sets()) {
    const ForcedInstructionSet forced(set);
    const auto y = floats_of(linear(mx::array(values.data(), {2, 64}, mx::float32), {packed}));
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(y[i], 0.0F);
      EXPECT_TRUE(std::isnan(y[16 + i]));
    }
  }
}

TEST(Linear, TakesStridedRowsAndNone) {
  const auto packed = pack(random_weight(StorageType::q8_0, 16, 64, 30).view);
  const auto x = random_rows(64, 6, 31);
  const auto strided = mx::transpose(x);
  const auto copied = mx::contiguous(mx::transpose(x));
  EXPECT_EQ(bytes_of(linear(strided, {packed})), bytes_of(linear(copied, {packed})));
  EXPECT_EQ(linear(mx::zeros({0, 64}), {packed}).shape(), (mx::Shape{0, 16}));
  EXPECT_EQ(bytes_of(linear(mx::zeros({0, 64}), {packed})), "");
}

/// A matrix of the widest format of each kind, every code and sub-scale at its limit: the sums that
/// 16 and 32 bits must hold.
PackedMatrix extreme_matrix(BandType type, std::uint8_t code, std::uint8_t sub_scale) {
  BandLayout layout{type, default_header(type)};
  return pack_blocks(layout, 16, 256, [&](int, int, int count, BlockCodes* codes) {
    BlockCodes block{};
    std::fill(std::begin(block.codes), std::end(block.codes), code);
    std::fill(std::begin(block.sub_scales), std::end(block.sub_scales), sub_scale);
    const std::uint16_t half = 0x1C00;  // 1/256
    const float one = 1.0F;
    if (layout.header.scale == ScaleType::f32) {
      std::memcpy(block.scale, &one, sizeof one);
    } else if (layout.header.scale == ScaleType::f16) {
      std::memcpy(block.scale, &half, sizeof half);
    } else {
      block.scale[0] = 127;
    }
    std::fill(codes, codes + count, block);
  });
}

TEST(Linear, LargeMagnitudesDoNotSaturate) {
  for (int i = static_cast<int>(BandType::q4_0); i < static_cast<int>(BandType::e4m3); ++i) {
    for (const std::uint8_t code : {0x00, 0x0F, 0x7F, 0x80}) {
      for (const std::uint8_t sub_scale : {0x3F, 0x80}) {
        const auto packed = extreme_matrix(static_cast<BandType>(i), code, sub_scale);
        for (const float value : {127.0F, -127.0F}) {
          const auto x = mx::full({1, packed.columns}, value);
          LinearOptions options;
          for (const auto format : {ActivationFormat::int8, ActivationFormat::int15}) {
            options.activations = format;
            for (const auto set : tests::supported_sets()) {
              const ForcedInstructionSet forced(set);
              EXPECT_LT(relative_difference(linear(x, {packed}, options), linear_ops(x, {packed})),
                        1e-5)
                  << i << ' ' << int{code} << ' ' << int{sub_scale} << ' ' << to_string(set);
            }
          }
        }
      }
    }
  }
}

TEST(Embedding, TakesScaledRowsOfTheTable) {
  for (const auto type : all_types) {
    const int columns = columns_of(type);
    const auto table = pack(random_weight(type, 50, columns, 33).view);
    const auto tokens = mx::array({49, 0, 17, 17, 16}, mx::int32);
    for (const auto dtype : {mx::float32, mx::float16, mx::bfloat16}) {
      const auto rows = mx::take(unpack(table), tokens, 0);
      const auto expected = mx::astype(rows * mx::array(1.5F), dtype);
      EXPECT_EQ(bytes_of(embedding(tokens, table, 1.5F, dtype)), bytes_of(expected))
          << name_of(type);
    }
  }
}

}  // namespace
}  // namespace espalier::kernels
