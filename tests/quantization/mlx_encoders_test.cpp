#include "quantization/mlx_encoders.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mlx/mlx.h"
#include "quantization/gguf_encoders.h"
#include "support/fixtures.h"

namespace espalier::quantization {
namespace {

namespace mx = mlx::core;
using nlohmann::json;

/// The bytes of an array's elements in order.
std::vector<std::byte> bytes_of(const mx::array& values) {
  mx::array whole = mx::contiguous(values);
  whole.eval();
  const auto* data = whole.data<std::uint8_t>();
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  return {begin, begin + whole.nbytes()};
}

std::vector<float> floats_of(const mx::array& values) {
  mx::array whole = mx::contiguous(mx::astype(values, mx::float32));
  whole.eval();
  return {whole.data<float>(), whole.data<float>() + whole.size()};
}

std::vector<std::byte> cast(const std::vector<float>& values, mx::Dtype dtype) {
  return bytes_of(
      mx::astype(mx::array(values.begin(), {static_cast<int>(values.size())}, mx::float32), dtype));
}

struct Encoded {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<std::byte> biases;  // empty for float modes
};

/// Ours for a weight whose scales have the weight's dtype.
Encoded encode(const MlxFormat& format, const mx::array& weight) {
  const std::vector<float> values = floats_of(weight);
  const std::size_t groups = values.size() / static_cast<std::size_t>(format.group);
  Encoded result;
  result.codes.resize(values.size() * static_cast<std::size_t>(format.bits) / 8);
  if (format.mode != MlxMode::affine) {
    result.scales.resize(groups);
    encode_float(format, values, result.codes, result.scales);
    return result;
  }
  std::vector<float> scales(groups);
  std::vector<float> biases(groups);
  encode_affine(format, values, result.codes, scales, biases);
  result.scales = cast(scales, weight.dtype());
  result.biases = cast(biases, weight.dtype());
  return result;
}

std::string mode_name(MlxMode mode) {
  switch (mode) {
    case MlxMode::affine:
      return "affine";
    case MlxMode::mxfp4:
      return "mxfp4";
    case MlxMode::mxfp8:
      return "mxfp8";
    case MlxMode::nvfp4:
      return "nvfp4";
  }
  return {};
}

void expect_equal_to_mlx(const MlxFormat& format, const mx::array& weight) {
  SCOPED_TRACE(mode_name(format.mode) + " " + std::to_string(format.bits) + " by " +
               std::to_string(format.group));
  const Encoded ours = encode(format, weight);
  const auto theirs = mx::quantize(weight, format.group, format.bits, mode_name(format.mode));
  EXPECT_EQ(ours.codes, bytes_of(theirs.at(0)));
  EXPECT_EQ(ours.scales, bytes_of(theirs.at(1)));
  if (format.mode == MlxMode::affine) {
    EXPECT_EQ(ours.biases, bytes_of(theirs.at(2)));
  }
}

std::vector<MlxFormat> all_formats() {
  std::vector<MlxFormat> formats;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) formats.push_back({MlxMode::affine, bits, group});
  }
  for (const MlxMode mode : {MlxMode::mxfp4, MlxMode::mxfp8, MlxMode::nvfp4}) {
    formats.push_back(mlx_float_format(mode));
  }
  return formats;
}

/// Random rows of very different size; rows of one sign, of zeros and of equal values.
mx::array hard_weight(mx::Dtype dtype) {
  constexpr int rows = 32;
  constexpr int columns = 256;
  mx::array weight = mx::random::normal({rows, columns}, mx::float32, mx::random::key(5));
  std::vector<float> scales;
  for (int row = 0; row < rows; ++row) scales.push_back(std::exp2(static_cast<float>(row - 20)));
  weight = mx::multiply(weight, mx::array(scales.begin(), {rows, 1}, mx::float32));
  const mx::array edges = mx::concatenate(
      {mx::abs(mx::slice(weight, {20, 0}, {22, columns})),
       mx::negative(mx::abs(mx::slice(weight, {20, 0}, {22, columns}))), mx::zeros({1, columns}),
       mx::full({1, columns}, 0.7F), mx::full({1, columns}, -0.7F),
       mx::reshape(mx::arange(-128.0, 128.0, 1.0, mx::float32), {1, columns}),
       mx::reshape(mx::arange(-1.0, 1.0, 1.0 / 128, mx::float32), {1, columns})},
      0);
  return mx::astype(mx::concatenate({weight, edges}, 0), dtype);
}

TEST(MlxEncoders, EqualMlxOnHardValues) {
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    const mx::array weight = hard_weight(dtype);
    for (const MlxFormat& format : all_formats()) {
      // MLX divides halves as halves here, and so loses the scales of small groups.
      if (format.mode != MlxMode::affine && dtype == mx::float16) continue;
      expect_equal_to_mlx(format, weight);
    }
  }
}

TEST(MlxEncoders, DecodeWhatMlxEncoded) {
  const mx::array weight = hard_weight(mx::float32);
  for (const MlxFormat& format : all_formats()) {
    SCOPED_TRACE(mode_name(format.mode) + std::to_string(format.bits));
    const auto parts = mx::quantize(weight, format.group, format.bits, mode_name(format.mode));
    std::vector<float> values(weight.size());
    std::vector<float> expected;
    if (format.mode == MlxMode::affine) {
      decode_affine(format, bytes_of(parts[0]), floats_of(parts[1]), floats_of(parts[2]), values);
      expected = floats_of(mx::dequantize(parts[0], parts[1], parts[2], format.group, format.bits));
    } else {
      decode_float(format, bytes_of(parts[0]), bytes_of(parts[1]), values);
      expected =
          floats_of(mx::dequantize(parts[0], parts[1], std::nullopt, format.group, format.bits,
                                   mode_name(format.mode), std::nullopt, mx::float32));
    }
    EXPECT_EQ(values, expected);
  }
}

/// shared/fixtures/ops/golden.json says how it is read.
class Golden {
 public:
  explicit Golden(const std::filesystem::path& path) : file_(json::parse(std::ifstream(path))) {}

  const json& cases() const { return file_.at("cases"); }

  static mx::Dtype dtype(const std::string& name) {
    if (name == "bf16") return mx::bfloat16;
    return name == "f16" ? mx::float16 : mx::float32;
  }

  static mx::array generated(const json& entry) {
    auto state = entry.at("gen").at(0).get<std::uint32_t>();
    const double low = entry.at("gen").at(1);
    const double high = entry.at("gen").at(2);
    std::vector<float> values;
    const auto shape = entry.at("sh").get<std::vector<int>>();
    const int count = shape.at(0) * shape.at(1);
    for (int i = 0; i < count; ++i) {
      state = state * 1664525U + 1013904223U;
      values.push_back(
          static_cast<float>(low + static_cast<double>(state >> 8U) / 16777216.0 * (high - low)));
    }
    return mx::astype(mx::array(values.begin(), mx::Shape(shape.begin(), shape.end())),
                      dtype(entry.at("dt")));
  }

  /// Elements are written most significant digit first.
  static std::string hex(const std::vector<std::byte>& bytes, std::size_t width) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += width) {
      for (std::size_t j = width; j-- > 0;) {
        text += digits[static_cast<int>(bytes[i + j]) >> 4];
        text += digits[static_cast<int>(bytes[i + j]) & 0xF];
      }
    }
    return text;
  }

 private:
  json file_;
};

TEST(MlxEncoders, EqualTheGoldenOperations) {
  const auto shared = tests::shared_folder();
  if (!shared) GTEST_SKIP() << "the reference data is missing";
  const Golden golden(*shared / "fixtures/ops/golden.json");
  const std::map<std::string, MlxMode> modes = {{"affine", MlxMode::affine},
                                                {"mxfp4", MlxMode::mxfp4},
                                                {"mxfp8", MlxMode::mxfp8},
                                                {"nvfp4", MlxMode::nvfp4}};
  int checked = 0;
  for (const json& entry : golden.cases()) {
    if (entry.at("op") != "quantize" || !entry.contains("out") ||
        !entry.at("in").at("w").contains("gen")) {
      continue;
    }
    const json& arguments = entry.at("args");
    const MlxFormat format{modes.at(arguments.at("mode")), arguments.at("bits"),
                           arguments.at("groupSize")};
    if (!is_mlx_format(format)) continue;
    SCOPED_TRACE("case " + entry.at("out").at(0).value("id", json()).dump());
    const mx::array weight = Golden::generated(entry.at("in").at("w"));
    const Encoded ours = encode(format, weight);
    const json& out = entry.at("out");
    EXPECT_EQ(Golden::hex(ours.codes, 4), out.at(0).at("hex").get<std::string>());
    const std::size_t scale_size = format.mode == MlxMode::affine ? mx::size_of(weight.dtype()) : 1;
    EXPECT_EQ(Golden::hex(ours.scales, scale_size), out.at(1).at("hex").get<std::string>());
    if (format.mode == MlxMode::affine) {
      EXPECT_EQ(Golden::hex(ours.biases, scale_size), out.at(2).at("hex").get<std::string>());
    }
    ++checked;
  }
  EXPECT_GE(checked, 18);
}

TEST(MlxFormats, OnlyThoseOfMlx) {
  EXPECT_TRUE(is_mlx_format({MlxMode::affine, 3, 128}));
  EXPECT_FALSE(is_mlx_format({MlxMode::affine, 7, 64}));
  EXPECT_FALSE(is_mlx_format({MlxMode::affine, 1, 64}));
  EXPECT_FALSE(is_mlx_format({MlxMode::affine, 4, 16}));
  EXPECT_FALSE(is_mlx_format({MlxMode::mxfp4, 4, 64}));
  EXPECT_TRUE(is_mlx_format({MlxMode::nvfp4, 4, 16}));
}

}  // namespace
}  // namespace espalier::quantization
