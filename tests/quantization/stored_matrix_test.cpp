// Every scheme of safetensors checkpoints: MLX's against its fixtures, the others against matrices
// that the tests pack by the schemes' descriptions.
#include "quantization/stored_matrix.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/linear_results.h"
#include "support/fixtures.h"
#include "support/golden_array.h"

namespace espalier::quantization {
namespace {

namespace mx = mlx::core;
using arrays::StorageType;
using testing::HasSubstr;
using tests::GoldenArray;

/// Tensors by name, as a checkpoint holds them.
class Store {
 public:
  void add(const std::string& name, StorageType type, std::vector<std::int64_t> shape,
           std::vector<std::byte> bytes) {
    auto& owned = bytes_[name] = std::move(bytes);
    views_[name] = {name, type, std::move(shape), owned};
  }
  template <class T>
  void add(const std::string& name, StorageType type, std::vector<std::int64_t> shape,
           const std::vector<T>& values) {
    const auto* first = reinterpret_cast<const std::byte*>(values.data());
    add(name, type, std::move(shape),
        std::vector<std::byte>(first, first + values.size() * sizeof(T)));
  }
  void add(const std::string& name, const GoldenArray& array) {
    const std::map<std::string, StorageType> types = {{"bf16", StorageType::bf16},
                                                      {"f16", StorageType::f16},
                                                      {"f32", StorageType::f32},
                                                      {"u32", StorageType::u32},
                                                      {"u8", StorageType::u8}};
    add(name, types.at(array.dtype), array.shape, array.bytes);
  }

  StoredMatrix find(int rows, int columns, const WeightSchemes& schemes = {}) const {
    return find_matrix(
        [this](const std::string& name) {
          const auto view = views_.find(name);
          return view == views_.end() ? std::nullopt : std::optional(view->second);
        },
        schemes, "file", "m", rows, columns);
  }
  kernels::PackedMatrix pack_all(int rows, int columns, const WeightSchemes& schemes = {}) const {
    std::vector<int> all(static_cast<std::size_t>(rows));
    std::iota(all.begin(), all.end(), 0);
    const StoredMatrix matrix = find(rows, columns, schemes);
    EXPECT_EQ(matrix.tensors.size() + unused_, views_.size());
    kernels::PackedMatrix packed = pack(matrix, all, columns);
    const kernels::PackedMatrix in_place = pack(matrix, all, columns, std::make_shared<int>());
    for (const auto format : {kernels::ActivationFormat::int8, kernels::ActivationFormat::int15,
                              kernels::ActivationFormat::f32}) {
      EXPECT_EQ(tests::linear_results(in_place, format, {1, 9}),
                tests::linear_results(packed, format, {1, 9}));
    }
    EXPECT_EQ(in_place.packed_bytes(), 0U);
    EXPECT_EQ(in_place.bytes(), packed_bytes(matrix, rows, columns));
    EXPECT_NEAR(static_cast<double>(packed.packed_bytes()), static_cast<double>(in_place.bytes()),
                64);  // a cache line
    return packed;
  }
  std::string error(int rows, int columns, const WeightSchemes& schemes = {}) const {
    try {
      find(rows, columns, schemes);
    } catch (const base::LoadError& error) {
      return error.what();
    }
    return "found";
  }
  void expect_unused(std::size_t count) { unused_ = count; }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, arrays::TensorView> views_;
  std::size_t unused_ = 0;
};

std::vector<float> floats_of(const mx::array& array) {
  auto values = mx::contiguous(mx::astype(array, mx::float32));
  values.eval();
  return {values.data<float>(), values.data<float>() + values.size()};
}

mx::array to_array(const GoldenArray& array) {
  const mx::Dtype dtype = array.dtype == "bf16"  ? mx::bfloat16
                          : array.dtype == "f16" ? mx::float16
                                                 : mx::float32;
  mx::Shape shape(array.shape.begin(), array.shape.end());
  mx::array result(mx::allocator::malloc(array.bytes.size()), shape, dtype);
  std::memcpy(result.data<char>(), array.bytes.data(), array.bytes.size());
  return result;
}

/// The MLX weight of a fixture as a checkpoint's tensors; its inputs.
int add_mlx(Store& store, const tests::GoldenCases& golden, const nlohmann::json& in, int bits) {
  const GoldenArray weight = golden.array(in.at("w"));
  store.add("m.weight", weight);
  store.add("m.scales", golden.array(in.at("s")));
  if (in.contains("b")) store.add("m.biases", golden.array(in.at("b")));
  return static_cast<int>(weight.shape[1] * 32 / bits);
}

class MlxFixtures : public testing::Test {
 protected:
  void SetUp() override {
    const auto shared = tests::shared_folder();
    if (!shared) GTEST_SKIP() << "the shared folder is absent";
    std::ifstream(*shared / "fixtures/ops/golden.json") >> file_;
  }
  nlohmann::json file_;
};

TEST_F(MlxFixtures, DequantizeAsMlxDoes) {
  const tests::GoldenCases golden(file_);
  int cases = 0;
  for (const auto& entry : golden.cases()) {
    if (entry.at("op") != "dequantize" || entry.contains("err")) continue;
    const auto& args = entry.at("args");
    // Scales that are not numbers are refused.
    if (entry.at("class") == "c" && args.at("mode") == "nvfp4") continue;
    SCOPED_TRACE(entry.at("id").get<int>());
    const GoldenArray expected = golden.array(entry.at("out")[0]);
    if (expected.shape.size() != 2) continue;
    Store store;
    const int columns = add_mlx(store, golden, entry.at("in"), args.at("bits"));
    const auto rows = static_cast<int>(expected.shape[0]);
    const auto values = floats_of(kernels::unpack(store.pack_all(rows, columns)));
    const auto wanted = floats_of(to_array(expected));
    ASSERT_EQ(values.size(), wanted.size());
    std::vector<float> biases(values.size(), 0.0F);
    if (entry.at("in").contains("b")) {
      biases = floats_of(to_array(golden.array(entry.at("in").at("b"))));
    }
    const std::size_t group = values.size() / biases.size();
    const double ulp = expected.dtype == "f32"   ? 0x1p-23
                       : expected.dtype == "f16" ? 0x1p-10
                                                 : 0x1p-7;
    for (std::size_t i = 0; i < values.size(); ++i) {
      // MLX rounds product and sum, each to the output's type.
      const double term = std::abs(wanted[i]) + std::abs(biases[i / group]);
      ASSERT_NEAR(values[i], wanted[i], ulp * term) << "value " << i;
    }
    ++cases;
  }
  EXPECT_GT(cases, 25);
}

TEST_F(MlxFixtures, MultiplyAsTheReferenceDoes) {
  const tests::GoldenCases golden(file_);
  int cases = 0;
  for (const auto& entry : golden.cases()) {
    const auto& args = entry.value("args", nlohmann::json::object());
    if (entry.at("op") != "quantizedMatmul" || !entry.contains("ref32") ||
        !args.value("transpose", true) || !entry.at("in").contains("s")) {
      continue;
    }
    SCOPED_TRACE(entry.at("id").get<int>());
    const GoldenArray expected = golden.array(entry.at("ref32")[0]);
    const GoldenArray x = golden.array(entry.at("in").at("x"));
    if (x.shape.size() != 2 || x.dtype != expected.dtype) continue;
    Store store;
    const int columns = add_mlx(store, golden, entry.at("in"), args.at("bits"));
    const auto packed = store.pack_all(static_cast<int>(expected.shape[1]), columns);
    const auto wanted = floats_of(to_array(expected));
    double largest = 1;
    for (const float value : wanted) largest = std::max(largest, double{std::abs(value)});
    const double own = expected.dtype == "f32" ? 2e-5 : expected.dtype == "f16" ? 1.5e-3 : 1.2e-2;
    for (const auto format : {kernels::ActivationFormat::f32, kernels::ActivationFormat::int15}) {
      kernels::LinearOptions options;
      options.activations = format;
      const auto values = floats_of(kernels::linear(to_array(x), {packed}, options));
      ASSERT_EQ(values.size(), wanted.size());
      const double tolerance = format == kernels::ActivationFormat::f32 ? own : std::max(own, 1e-4);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], wanted[i], tolerance * largest);
      }
    }
    ++cases;
  }
  EXPECT_GT(cases, 20);
}

TEST_F(MlxFixtures, NameWhatDoesNotFit) {
  const tests::GoldenCases golden(file_);
  for (const auto& entry : golden.cases()) {
    if (entry.at("op") != "dequantize" || entry.at("args").at("bits") != 4 ||
        entry.at("args").at("groupSize") != 64) {
      continue;
    }
    Store store;
    const int columns = add_mlx(store, golden, entry.at("in"), 4);
    EXPECT_EQ(store.error(4, columns), "found");
    EXPECT_THAT(store.error(5, columns), HasSubstr("'m.weight' has shape"));
    WeightSchemes schemes{.mlx = MlxScheme{8, 64, "affine"}};
    EXPECT_THAT(store.error(4, columns, schemes), HasSubstr("configuration says 8 bits"));
    schemes.mlx_modules["m"] = MlxScheme{4, 64, "affine"};
    EXPECT_EQ(store.error(4, columns, schemes), "found");
    Store incomplete;
    incomplete.add("m.weight", golden.array(entry.at("in").at("w")));
    incomplete.add("m.scales", golden.array(entry.at("in").at("s")));
    EXPECT_THAT(incomplete.error(4, columns), HasSubstr("'m.biases' is missing"));
    return;
  }
  FAIL() << "no case";
}

constexpr int rows = 24;
constexpr int columns = 128;
constexpr int group = 64;

/// A number for each place.
std::vector<int> random_numbers(std::size_t count, int below, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> numbers(count);
  for (int& number : numbers) number = static_cast<int>(random() % static_cast<unsigned>(below));
  return numbers;
}

/// A scale for each group of each row that f16 and bf16 hold.
float scale_of(int row, int index) {
  return (static_cast<float>(row) + 1.0F) * (index == 0 ? 0x1p-7F : -0x1p-9F);
}

std::uint16_t half_bits(float value) {
  const auto half = static_cast<_Float16>(value);
  std::uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

void expect_values(const kernels::PackedMatrix& packed,
                   const std::function<float(int row, int column)>& expected) {
  const auto values = floats_of(kernels::unpack(packed));
  ASSERT_EQ(values.size(), static_cast<std::size_t>(rows) * columns);
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < columns; ++k) {
      ASSERT_EQ(values[static_cast<std::size_t>(row * columns + k)], expected(row, k))
          << row << ' ' << k;
    }
  }
}

/// Sets number `index` of a stream of `bits` bits in a line of words `stride` apart.
void put(std::vector<std::uint32_t>& words, std::int64_t first, std::int64_t stride, int bits,
         int index, int number) {
  for (int bit = 0; bit < bits; ++bit) {
    const std::int64_t place = static_cast<std::int64_t>(index) * bits + bit;
    if ((number >> bit & 1) != 0) words[first + place / 32 * stride] |= 1U << (place % 32);
  }
}

TEST(StoredMatrix, Gptq) {
  for (const int bits : {2, 3, 4, 8}) {
    const auto codes = random_numbers(rows * columns, 1 << bits, 1);
    const auto zeros = random_numbers(rows * 2, 1 << bits, 2);
    const std::int64_t zero_words = (rows * bits + 31) / 32;
    std::vector<std::uint32_t> weight(columns * bits / 32 * rows);
    std::vector<std::uint32_t> packed_zeros(2 * zero_words);
    std::vector<std::uint16_t> scales(2 * rows);
    std::vector<std::int32_t> order(columns);
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < columns; ++k) {
        put(weight, row, rows, bits, k, codes[row * columns + k]);
        order[k] = k / group;
      }
      for (int index = 0; index < 2; ++index) {
        put(packed_zeros, index * zero_words, 1, bits, row, zeros[row * 2 + index]);
        scales[index * rows + row] = half_bits(scale_of(row, index));
      }
    }
    Store store;
    store.add("m.qweight", StorageType::i32, {columns * bits / 32, rows}, weight);
    store.add("m.qzeros", StorageType::i32, {2, zero_words}, packed_zeros);
    store.add("m.scales", StorageType::f16, {2, rows}, scales);
    store.add("m.g_idx", StorageType::i32, {columns}, order);
    const auto value = [&](int row, int k, int offset) {
      const int index = k / group;
      return scale_of(row, index) *
             static_cast<float>(codes[row * columns + k] - zeros[row * 2 + index] - offset);
    };
    WeightSchemes schemes{.method = WeightSchemes::Method::gptq};
    expect_values(store.pack_all(rows, columns, schemes),
                  [&](int row, int k) { return value(row, k, 1); });
    schemes.zero_point_offset = 0;
    expect_values(store.pack_all(rows, columns, schemes),
                  [&](int row, int k) { return value(row, k, 0); });
    schemes.mlx = MlxScheme{.bits = bits, .group = group, .mode = ""};
    EXPECT_EQ(store.error(rows, columns, schemes), "found");
    schemes.mlx->group = -1;  // whole rows, or as the tensors say
    EXPECT_EQ(store.error(rows, columns, schemes), "found");
    schemes.mlx->group = group / 2;
    EXPECT_THAT(store.error(rows, columns, schemes), HasSubstr("'m.qweight' is stored in"));
    schemes.mlx->bits = bits + 1;
    EXPECT_THAT(store.error(rows, columns, schemes), HasSubstr("the configuration says"));
    schemes.mlx.reset();
    std::swap(order.front(), order.back());
    store.add("m.g_idx", StorageType::i32, {columns}, order);
    EXPECT_THAT(store.error(rows, columns, schemes), HasSubstr("act-order"));
  }
}

TEST(StoredMatrix, Awq) {
  // The order in which AWQ's kernels unpack the eight numbers of a word.
  constexpr int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  const auto codes = random_numbers(rows * columns, 16, 3);
  const auto zeros = random_numbers(rows * 2, 16, 4);
  std::vector<std::uint32_t> weight(columns * rows / 8);
  std::vector<std::uint32_t> packed_zeros(2 * rows / 8);
  std::vector<std::uint16_t> scales(2 * rows);
  for (int word = 0; word < rows / 8; ++word) {
    for (int place = 0; place < 8; ++place) {
      const int row = word * 8 + order[place];
      for (int k = 0; k < columns; ++k) {
        put(weight, k * (rows / 8) + word, 1, 4, place, codes[row * columns + k]);
      }
      for (int index = 0; index < 2; ++index) {
        put(packed_zeros, index * (rows / 8) + word, 1, 4, place, zeros[row * 2 + index]);
        scales[index * rows + row] = half_bits(scale_of(row, index));
      }
    }
  }
  Store store;
  store.add("m.qweight", StorageType::i32, {columns, rows / 8}, weight);
  store.add("m.qzeros", StorageType::i32, {2, rows / 8}, packed_zeros);
  store.add("m.scales", StorageType::f16, {2, rows}, scales);
  expect_values(
      store.pack_all(rows, columns, {.method = WeightSchemes::Method::awq}), [&](int row, int k) {
        const int zero = zeros[row * 2 + k / group];
        return scale_of(row, k / group) * static_cast<float>(codes[row * columns + k] - zero);
      });
}

TEST(StoredMatrix, CompressedTensors) {
  for (const int bits : {4, 8}) {
    for (const bool symmetric : {true, false}) {
      const auto codes = random_numbers(rows * columns, 1 << bits, 5);
      const auto zeros = random_numbers(rows * 2, 1 << bits, 6);
      const int per_word = 32 / bits;
      std::vector<std::uint32_t> weight(rows * columns / per_word);
      std::vector<std::uint32_t> packed_zeros(rows / per_word * 2);
      std::vector<std::uint16_t> scales(rows * 2);
      for (int row = 0; row < rows; ++row) {
        for (int k = 0; k < columns; ++k) {
          put(weight, row * columns / per_word, 1, bits, k, codes[row * columns + k]);
        }
        for (int index = 0; index < 2; ++index) {
          put(packed_zeros, index, 2, bits, row, zeros[row * 2 + index]);
          scales[row * 2 + index] = std::bit_cast<std::uint32_t>(scale_of(row, index)) >> 16U;
        }
      }
      Store store;
      store.add("m.weight_packed", StorageType::i32, {rows, columns / per_word}, weight);
      store.add("m.weight_scale", StorageType::bf16, {rows, 2}, scales);
      store.add("m.weight_shape", StorageType::i64, {2}, std::vector<std::int64_t>{rows, columns});
      if (!symmetric) {
        store.add("m.weight_zero_point", StorageType::i32, {rows / per_word, 2}, packed_zeros);
      }
      expect_values(store.pack_all(rows, columns), [&](int row, int k) {
        const int zero = symmetric ? 1 << (bits - 1) : zeros[row * 2 + k / group];
        return scale_of(row, k / group) * static_cast<float>(codes[row * columns + k] - zero);
      });
    }
  }
}

/// The value of an e4m3 code, as the format's definition has it.
float e4m3(int code) {
  const int exponent = code >> 3 & 15;
  const auto mantissa = static_cast<float>(code & 7);
  const float magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0F + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

std::vector<std::uint8_t> e4m3_codes(std::size_t count) {
  std::vector<std::uint8_t> codes;
  for (const int number : random_numbers(count, 256, 7)) {
    codes.push_back(static_cast<std::uint8_t>((number & 0x7F) == 0x7F ? 0 : number));
  }
  return codes;
}

TEST(StoredMatrix, Fp8WithScalesOfEveryShape) {
  const auto codes = e4m3_codes(rows * columns);
  struct Shape {
    std::vector<std::int64_t> shape;
    int block_rows;
    int block_columns;
  };
  const Shape shapes[] = {{{}, rows, columns},     {{1}, rows, columns}, {{rows}, 1, columns},
                          {{rows, 1}, 1, columns}, {{rows, 4}, 1, 32},   {{2, 2}, 16, 64}};
  for (const auto& [shape, block_rows, block_columns] : shapes) {
    const int across = columns / block_columns;
    std::vector<float> scales;
    for (int i = 0; i < (rows + block_rows - 1) / block_rows * across; ++i) {
      scales.push_back(0.3F + 0.1F * static_cast<float>(i));
    }
    Store store;
    store.add("m.weight", StorageType::f8_e4m3, {rows, columns}, codes);
    store.add("m.weight_scale_inv", StorageType::f32, shape, scales);
    store.add("m.input_scale", StorageType::f32, {}, std::vector<float>{0.5F});
    expect_values(store.pack_all(rows, columns, {.scale_block = {16, 64}}), [&](int row, int k) {
      return scales[row / block_rows * across + k / block_columns] * e4m3(codes[row * columns + k]);
    });
  }
  Store store;
  store.add("m.weight", StorageType::f8_e4m3, {rows, columns}, codes);
  store.add("m.weight_scale", StorageType::f32, {3, 3}, std::vector<float>(9, 1.0F));
  EXPECT_THAT(store.error(rows, columns), HasSubstr("'m.weight_scale' has shape [3, 3]"));
}

TEST(StoredMatrix, Int8) {
  std::vector<std::int8_t> codes;
  for (const int number : random_numbers(rows * columns, 256, 8)) {
    codes.push_back(static_cast<std::int8_t>(number - 128));
  }
  std::vector<float> scales;
  for (int row = 0; row < rows; ++row) scales.push_back(scale_of(row, 0));
  Store store;
  store.add("m.weight", StorageType::i8, {rows, columns}, codes);
  store.add("m.weight_scale", StorageType::f32, {rows, 1}, scales);
  expect_values(store.pack_all(rows, columns), [&](int row, int k) {
    return scales[row] * static_cast<float>(codes[row * columns + k]);
  });
}

TEST(StoredMatrix, Nvfp4OfOtherTools) {
  constexpr float levels[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const auto codes = random_numbers(rows * columns, 16, 9);
  std::vector<std::uint8_t> weight(rows * columns / 2);
  for (std::size_t i = 0; i < codes.size(); ++i) weight[i / 2] |= codes[i] << (i % 2 * 4);
  const auto scales = e4m3_codes(rows * columns / 16);
  const auto value = [&](int row, int k) {
    const int i = row * columns + k;
    const float magnitude = levels[codes[i] & 7] * e4m3(scales[i / 16]);
    return (codes[i] & 8) != 0 ? -magnitude : magnitude;
  };
  Store model_opt;
  model_opt.add("m.weight", StorageType::u8, {rows, columns / 2}, weight);
  model_opt.add("m.weight_scale", StorageType::f8_e4m3, {rows, columns / 16}, scales);
  model_opt.add("m.weight_scale_2", StorageType::f32, {}, std::vector<float>{0.25F});
  expect_values(model_opt.pack_all(rows, columns),
                [&](int row, int k) { return 0.25F * value(row, k); });
  Store compressed;
  compressed.add("m.weight_packed", StorageType::u8, {rows, columns / 2}, weight);
  compressed.add("m.weight_scale", StorageType::f8_e4m3, {rows, columns / 16}, scales);
  compressed.add("m.weight_global_scale", StorageType::f32, {1}, std::vector<float>{4.0F});
  expect_values(compressed.pack_all(rows, columns),
                [&](int row, int k) { return 0.25F * value(row, k); });
  compressed.add("m.weight_global_scale", StorageType::f32, {1}, std::vector<float>{0.0F});
  EXPECT_THAT(compressed.error(rows, columns), HasSubstr("'m.weight_global_scale' is zero"));
}

TEST(StoredMatrix, Nf4WithPlainAndWithQuantizedScales) {
  const std::vector<float> map(std::begin(kernels::nf4_values), std::end(kernels::nf4_values));
  const auto codes = random_numbers(rows * columns, 16, 10);
  std::vector<std::uint8_t> weight(rows * columns / 2);
  for (std::size_t i = 0; i < codes.size(); ++i) weight[i / 2] |= codes[i] << (4 - i % 2 * 4);
  const int blocks = rows * columns / group;
  nlohmann::json state = {{"quant_type", "nf4"}, {"blocksize", group}, {"shape", {rows, columns}}};
  const auto add = [&](Store& store) {
    store.add("m.weight", StorageType::u8, {rows * columns / 2, 1}, weight);
    store.add("m.weight.quant_map", StorageType::f32, {16}, map);
    const std::string text = state.dump();
    store.add("m.weight.quant_state.bitsandbytes__nf4", StorageType::u8,
              {static_cast<std::int64_t>(text.size())},
              std::vector<std::uint8_t>(text.begin(), text.end()));
  };
  std::vector<float> scales;
  for (int i = 0; i < blocks; ++i) scales.push_back(0.1F * static_cast<float>(i + 1));
  Store plain;
  add(plain);
  plain.add("m.weight.absmax", StorageType::f32, {blocks}, scales);
  expect_values(plain.pack_all(rows, columns), [&](int row, int k) {
    const int i = row * columns + k;
    return scales[i / group] * map[codes[i]];
  });
  state["nested_blocksize"] = 16;
  state["nested_offset"] = 0.25;
  std::vector<std::uint8_t> nested;
  for (int i = 0; i < blocks; ++i) nested.push_back(static_cast<std::uint8_t>(i * 5));
  std::vector<float> nested_map;
  for (int i = 0; i < 256; ++i) nested_map.push_back(static_cast<float>(i) / 128.0F - 1.0F);
  const std::vector<float> nested_absmax = {0.5F, 2.0F, 4.0F};
  Store twice;
  add(twice);
  twice.add("m.weight.absmax", StorageType::u8, {blocks}, nested);
  twice.add("m.weight.nested_quant_map", StorageType::f32, {256}, nested_map);
  twice.add("m.weight.nested_absmax", StorageType::f32, {3}, nested_absmax);
  expect_values(twice.pack_all(rows, columns), [&](int row, int k) {
    const int i = row * columns + k;
    const float scale = nested_map[nested[i / group]] * nested_absmax[i / group / 16] + 0.25F;
    return scale * map[codes[i]];
  });
}

TEST(StoredMatrix, NamesWhatIsMissing) {
  Store store;
  EXPECT_THAT(store.error(rows, columns), HasSubstr("file: tensor 'm.weight' is missing"));
  store.add("m.weight", StorageType::f32, {2, 2}, std::vector<float>(4));
  EXPECT_THAT(store.error(rows, columns), HasSubstr("has shape [2, 2], expected [24, 128]"));
}

}  // namespace
}  // namespace espalier::quantization
