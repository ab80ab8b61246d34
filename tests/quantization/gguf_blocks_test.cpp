#include "quantization/gguf_blocks.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "arrays/gguf_blocks.h"

namespace espalier::quantization {
namespace {

using arrays::storage_traits;
using arrays::StorageType;

/// The blocks that make_golden.py gave to the `gguf` package.
std::vector<std::byte> golden_bytes(std::uint64_t seed, std::size_t blocks, std::size_t size) {
  std::vector<std::byte> bytes(blocks * size);
  for (std::byte& byte : bytes) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(seed >> 56U);
  }
  const std::byte edges[] = {std::byte{0x00}, std::byte{0xFF}, std::byte{0x80}};
  for (std::size_t block = 0; block < 3; ++block) {
    for (std::size_t i = 0; i < size; ++i) bytes[block * size + i] = edges[block];
  }
  return bytes;
}

std::uint32_t comparable_bits(float value) {
  return std::isnan(value) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(value);
}

std::optional<StorageType> type_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(StorageType::nvfp4); ++i) {
    const auto type = static_cast<StorageType>(i);
    if (storage_traits(type).name == name) return type;
  }
  return std::nullopt;
}

TEST(GgufBlocks, EqualTheGgufPackageBitForBit) {
  std::ifstream file(ESPALIER_SOURCE_DIR "/tests/quantization/golden_blocks.json");
  const auto golden = nlohmann::json::parse(file);
  const auto blocks = golden.at("blocks").get<std::size_t>();
  EXPECT_EQ(golden.at("types").size(), 23U);
  for (const auto& entry : golden.at("types")) {
    const auto name = entry.at("type").get<std::string>();
    SCOPED_TRACE(name);
    const auto type = type_named(name);
    ASSERT_TRUE(type);
    ASSERT_TRUE(can_dequantize(*type));
    const auto& traits = storage_traits(*type);
    const auto bytes = golden_bytes(golden.at("seed"), blocks, traits.bytes);
    std::vector<float> values(blocks * traits.elements);
    dequantize(*type, bytes, values);
    const auto& sample = entry.at("sample");
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const auto expected = std::stoul(sample[i].get<std::string>(), nullptr, 16);
      EXPECT_EQ(comparable_bits(values[3 * traits.elements + i]), expected) << "value " << i;
    }
    std::uint64_t hash = 0xCBF29CE484222325U;
    for (const float value : values) hash = (hash ^ comparable_bits(value)) * 0x100000001B3U;
    EXPECT_EQ(hash, std::stoull(entry.at("hash").get<std::string>(), nullptr, 16));
  }
}

TEST(GgufBlocks, LayoutsHaveTheSizesOfTheFormat) {
  using namespace arrays;
  const auto size = [](StorageType type) {
    return static_cast<std::size_t>(storage_traits(type).bytes);
  };
  EXPECT_EQ(sizeof(BlockQ4_0), size(StorageType::q4_0));
  EXPECT_EQ(sizeof(BlockQ4_1), size(StorageType::q4_1));
  EXPECT_EQ(sizeof(BlockQ5_0), size(StorageType::q5_0));
  EXPECT_EQ(sizeof(BlockQ5_1), size(StorageType::q5_1));
  EXPECT_EQ(sizeof(BlockQ8_0), size(StorageType::q8_0));
  EXPECT_EQ(sizeof(BlockQ2_K), size(StorageType::q2_k));
  EXPECT_EQ(sizeof(BlockQ3_K), size(StorageType::q3_k));
  EXPECT_EQ(sizeof(BlockQ4_K), size(StorageType::q4_k));
  EXPECT_EQ(sizeof(BlockQ5_K), size(StorageType::q5_k));
  EXPECT_EQ(sizeof(BlockQ6_K), size(StorageType::q6_k));
  EXPECT_EQ(sizeof(BlockQ8_K), size(StorageType::q8_k));
}

TEST(GgufBlocks, PlainTypes) {
  const std::uint16_t halves[] = {0x3C00, 0xC000, 0x0001};  // 1, -2, 2^-24
  std::vector<float> values(3);
  dequantize(StorageType::f16, std::as_bytes(std::span(halves)), values);
  EXPECT_EQ(values, (std::vector<float>{1.0F, -2.0F, 0x1p-24F}));
  const std::uint16_t brains[] = {0x3F80, 0xC000, 0x4049};
  dequantize(StorageType::bf16, std::as_bytes(std::span(brains)), values);
  EXPECT_EQ(values, (std::vector<float>{1.0F, -2.0F, 3.140625F}));
  const float floats[] = {0.5F, -0.0F, 7.0F};
  dequantize(StorageType::f32, std::as_bytes(std::span(floats)), values);
  EXPECT_EQ(std::memcmp(values.data(), floats, sizeof floats), 0);
}

TEST(GgufBlocks, Q8KIsScaleTimesInteger) {
  arrays::BlockQ8_K block{.scale = 0.25F, .quants = {}, .sums = {}};
  block.quants[0] = -128;
  block.quants[255] = 3;
  std::vector<float> values(256);
  dequantize(StorageType::q8_k, std::as_bytes(std::span(&block, 1)), values);
  EXPECT_EQ(values[0], -32.0F);
  EXPECT_EQ(values[1], 0.0F);
  EXPECT_EQ(values[255], 0.75F);
}

TEST(GgufBlocks, RefusesWhatDoesNotFit) {
  std::vector<std::byte> bytes(36);
  std::vector<float> values(64);
  EXPECT_NO_THROW(dequantize(StorageType::q4_0, bytes, values));
  EXPECT_THROW(dequantize(StorageType::q4_0, std::span(bytes).first(35), values),
               std::invalid_argument);
  EXPECT_THROW(dequantize(StorageType::q4_0, bytes, std::span(values).first(32)),
               std::invalid_argument);
  EXPECT_THROW(dequantize(StorageType::i32, bytes, values), std::invalid_argument);
  EXPECT_FALSE(can_dequantize(StorageType::q8_1));
}

}  // namespace
}  // namespace espalier::quantization
