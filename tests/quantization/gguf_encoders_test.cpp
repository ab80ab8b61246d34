#include "quantization/gguf_encoders.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "quantization/gguf_blocks.h"

namespace espalier::quantization {
namespace {

using arrays::storage_traits;
using arrays::StorageType;

/// Uniform numbers in [-0.5, 0.5).
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}

  double next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<double>(state_ >> 40U) / 16777216.0 - 0.5;
  }

 private:
  std::uint64_t state_;
};

/// The values that make_encoded.py gave to the `gguf` package.
std::vector<float> golden_values(std::uint64_t seed, int blocks) {
  constexpr int size = 32;
  Generator uniform(seed);
  std::vector<float> values;
  for (int block = 0; block < blocks; ++block) {
    const double scale = std::ldexp(1.0, block % 23 - 12);
    for (int i = 0; i < size; ++i) {
      double sum = uniform.next();
      sum += uniform.next();
      sum += uniform.next();
      values.push_back(static_cast<float>((sum + 0.25 * (block % 3)) * scale));
    }
  }
  for (int i = 0; i < size; ++i) {
    values[i] = 0.0F;
    values[size + i] = 0.375F;
    values[2 * size + i] = i == 17 ? -3.25F : 0.0F;
  }
  return values;
}

std::string hex(std::span<const std::byte> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += digits[static_cast<int>(byte) >> 4];
    text += digits[static_cast<int>(byte) & 0xF];
  }
  return text;
}

StorageType type_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(StorageType::nvfp4); ++i) {
    const auto type = static_cast<StorageType>(i);
    if (storage_traits(type).name == name) return type;
  }
  throw std::invalid_argument(name);
}

TEST(GgufEncoders, EqualTheGgufPackageBitForBit) {
  std::ifstream file(ESPALIER_SOURCE_DIR "/tests/quantization/golden_encoded.json");
  const auto golden = nlohmann::json::parse(file);
  const auto values = golden_values(golden.at("seed"), golden.at("blocks"));
  EXPECT_EQ(golden.at("types").size(), 7U);
  for (const auto& entry : golden.at("types")) {
    const auto name = entry.at("type").get<std::string>();
    SCOPED_TRACE(name);
    const StorageType type = type_named(name);
    const auto& traits = storage_traits(type);
    std::vector<std::byte> bytes(values.size() / traits.elements * traits.bytes);
    quantize(type, values, bytes);
    const auto sample = entry.at("sample").get<std::string>();
    EXPECT_EQ(hex(std::span(bytes).subspan(3 * sample.size() / 2, sample.size() / 2)), sample);
    std::uint64_t hash = 0xCBF29CE484222325U;
    for (const std::byte byte : bytes) {
      hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001B3U;
    }
    EXPECT_EQ(hash, std::stoull(entry.at("hash").get<std::string>(), nullptr, 16));
  }
}

/// Squared error over squared values, after encoding and decoding.
double relative_error(StorageType type, const std::vector<float>& values) {
  const auto& traits = storage_traits(type);
  std::vector<std::byte> bytes(values.size() / traits.elements * traits.bytes);
  quantize(type, values, bytes);
  std::vector<float> decoded(values.size());
  dequantize(type, bytes, decoded);
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    error += std::pow(static_cast<double>(values[i]) - decoded[i], 2);
    power += std::pow(static_cast<double>(values[i]), 2);
  }
  return error / power;
}

struct PeerError {
  const char* type;
  double error;
};

class GgufEncodersByPeer : public testing::TestWithParam<PeerError> {};

/// The figures are those of llama.cpp's own encoders on the same values.
TEST_P(GgufEncodersByPeer, LoseNoMoreThanLlamaCpp) {
  constexpr int blocks = 256;
  Generator uniform(20240229);
  std::vector<float> values(blocks * 256);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sum = 0;
    for (int k = 0; k < 4; ++k) sum += uniform.next();
    values[i] = static_cast<float>(sum * (i / 256 % 5 == 0 ? 4 : 1));
  }
  EXPECT_LE(relative_error(type_named(GetParam().type), values), 1.0001 * GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    Types, GgufEncodersByPeer,
    testing::Values(PeerError{"q4_0", 6.681497e-03}, PeerError{"q4_k", 4.720944e-03},
                    PeerError{"q5_k", 1.212132e-03}, PeerError{"q6_k", 2.920962e-04},
                    PeerError{"iq4_nl", 5.407633e-03}, PeerError{"iq4_xs", 5.480005e-03}),
    [](const auto& info) { return std::string(info.param.type); });

/// Zeros, constants, spikes and subnormal or huge values come back near what they were.
TEST(GgufEncoders, EdgeBlocks) {
  for (const char* name :
       {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs"}) {
    SCOPED_TRACE(name);
    const StorageType type = type_named(name);
    EXPECT_TRUE(can_quantize(type));
    const auto encoded = [&](float fill, float spike) {
      std::vector<float> values(256, fill);
      values[100] = spike;
      const auto& traits = storage_traits(type);
      std::vector<std::byte> bytes(values.size() / traits.elements * traits.bytes);
      quantize(type, values, bytes);
      dequantize(type, bytes, values);
      return values;
    };
    for (const float value : encoded(0, 0)) EXPECT_EQ(value, 0.0F);
    for (const float value : encoded(1, 1)) EXPECT_NEAR(value, 1.0F, 0.02F);
    for (const float value : encoded(-1, -1)) EXPECT_NEAR(value, -1.0F, 0.02F);
    EXPECT_NEAR(encoded(0, 5)[100], 5.0F, 0.1F);
    EXPECT_NEAR(encoded(0, -5)[100], -5.0F, 0.1F);
    for (const float value : encoded(1e-42F, -1e-43F)) EXPECT_NEAR(value, 0.0F, 1e-6F);
    EXPECT_NO_THROW(encoded(3e38F, -3e38F));
  }
}

TEST(GgufEncoders, RefuseWhatDoesNotFit) {
  std::vector<float> values(64);
  std::vector<std::byte> bytes(36);
  EXPECT_NO_THROW(quantize(StorageType::q4_0, values, bytes));
  EXPECT_THROW(quantize(StorageType::q4_0, std::span(values).first(63), bytes),
               std::invalid_argument);
  EXPECT_THROW(quantize(StorageType::q2_k, values, bytes), std::invalid_argument);
  EXPECT_FALSE(can_quantize(StorageType::iq1_s));
}

}  // namespace
}  // namespace espalier::quantization
