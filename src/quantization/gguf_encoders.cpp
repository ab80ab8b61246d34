#include "quantization/gguf_encoders.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "quantization/gguf_block_encoders.h"
#include "quantization/small_floats.h"

namespace espalier::quantization {
namespace {

using namespace arrays;

constexpr int small_block = 32;

/// 1 / x; 0 where that is not finite.
float reciprocal(float x) {
  const float inverse = x == 0 ? 0.0F : 1 / x;
  return std::isfinite(inverse) ? inverse : 0.0F;
}

/// The value of largest magnitude, with its sign; the first of equals.
float signed_extreme(const float* values) {
  return *std::max_element(values, values + small_block,
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
}

/// The integer below `x` within 0 … `largest`; 0 for not-a-number.
int truncated(float x, int largest) {
  if (!(x > 0)) return 0;
  return static_cast<int>(std::min(x, static_cast<float>(largest)));
}

/// Places 32 codes as the four-bit types do: value i low and value i + 16 high in byte i.
void place_halves(const int (&codes)[small_block], std::uint8_t (&quants)[16]) {
  for (int i = 0; i < 16; ++i) {
    quants[i] = static_cast<std::uint8_t>((codes[i] & 0xF) | (codes[i + 16] & 0xF) << 4);
  }
}

/// Bit i of `high` is the fifth bit of value i.
void place_fifth_bits(const int (&codes)[small_block], std::uint8_t (&high)[4]) {
  std::uint32_t bits = 0;
  for (int i = 0; i < small_block; ++i) bits |= static_cast<std::uint32_t>(codes[i] >> 4) << i;
  std::memcpy(high, &bits, sizeof bits);
}

/// Codes around `middle`, of which the extreme value takes the lowest; returns the scale.
float encode_centred(const float* values, int middle, int (&codes)[small_block]) {
  const float scale = signed_extreme(values) / static_cast<float>(-middle);
  const float inverse = reciprocal(scale);
  const float shift = static_cast<float>(middle) + 0.5F;
  for (int i = 0; i < small_block; ++i) {
    codes[i] = truncated(values[i] * inverse + shift, 2 * middle - 1);
  }
  return scale;
}

struct ScaleAndMinimum {
  float scale;
  float minimum;
};

/// Codes from the lowest value up.
ScaleAndMinimum encode_range(const float* values, int largest, int (&codes)[small_block]) {
  const auto [low, high] = std::minmax_element(values, values + small_block);
  const float scale = (*high - *low) / static_cast<float>(largest);
  const float inverse = reciprocal(scale);
  for (int i = 0; i < small_block; ++i) {
    codes[i] = truncated((values[i] - *low) * inverse + 0.5F, largest);
  }
  return {scale, *low};
}

using Encoder = void (*)(const float* values, std::size_t count, int elements, std::byte* bytes);

template <typename Block>
void encode_all(const float* values, std::size_t count, int elements, std::byte* bytes) {
  for (std::size_t i = 0; i < count; ++i) {
    Block block{};
    encode(values + i * static_cast<std::size_t>(elements), block);
    std::memcpy(bytes + i * sizeof(Block), &block, sizeof(Block));
  }
}

void encode_f32(const float* values, std::size_t count, int, std::byte* bytes) {
  std::memcpy(bytes, values, count * sizeof(float));
}

template <std::uint16_t (*encode_one)(float)>
void encode_halves(const float* values, std::size_t count, int, std::byte* bytes) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t bits = encode_one(values[i]);
    std::memcpy(bytes + i * sizeof bits, &bits, sizeof bits);
  }
}

Encoder encoder(StorageType type) {
  switch (type) {
    case StorageType::f32:
      return encode_f32;
    case StorageType::f16:
      return encode_halves<encode_f16>;
    case StorageType::bf16:
      return encode_halves<encode_bf16>;
    case StorageType::q4_0:
      return encode_all<BlockQ4_0>;
    case StorageType::q4_1:
      return encode_all<BlockQ4_1>;
    case StorageType::q5_0:
      return encode_all<BlockQ5_0>;
    case StorageType::q5_1:
      return encode_all<BlockQ5_1>;
    case StorageType::q8_0:
      return encode_all<BlockQ8_0>;
    case StorageType::q4_k:
      return encode_all<BlockQ4_K>;
    case StorageType::q5_k:
      return encode_all<BlockQ5_K>;
    case StorageType::q6_k:
      return encode_all<BlockQ6_K>;
    case StorageType::iq4_nl:
      return encode_all<BlockIQ4_NL>;
    case StorageType::iq4_xs:
      return encode_all<BlockIQ4_XS>;
    default:
      return nullptr;
  }
}

}  // namespace

void encode(const float* values, BlockQ4_0& block) {
  int codes[small_block];
  block.scale_bits = encode_f16(encode_centred(values, 8, codes));
  place_halves(codes, block.quants);
}

void encode(const float* values, BlockQ4_1& block) {
  int codes[small_block];
  const auto [scale, minimum] = encode_range(values, 15, codes);
  block.scale_bits = encode_f16(scale);
  block.minimum_bits = encode_f16(minimum);
  place_halves(codes, block.quants);
}

void encode(const float* values, BlockQ5_0& block) {
  int codes[small_block];
  block.scale_bits = encode_f16(encode_centred(values, 16, codes));
  place_halves(codes, block.quants);
  place_fifth_bits(codes, block.high_bits);
}

void encode(const float* values, BlockQ5_1& block) {
  int codes[small_block];
  const auto [scale, minimum] = encode_range(values, 31, codes);
  block.scale_bits = encode_f16(scale);
  block.minimum_bits = encode_f16(minimum);
  place_halves(codes, block.quants);
  place_fifth_bits(codes, block.high_bits);
}

void encode(const float* values, BlockQ8_0& block) {
  const float scale = std::abs(signed_extreme(values)) / 127;
  const float inverse = reciprocal(scale);
  block.scale_bits = encode_f16(scale);
  for (int i = 0; i < small_block; ++i) {
    block.quants[i] = static_cast<std::int8_t>(std::round(values[i] * inverse));
  }
}

bool can_quantize(StorageType type) { return encoder(type) != nullptr; }

void quantize(StorageType type, std::span<const float> values, std::span<std::byte> bytes) {
  const StorageTraits& traits = storage_traits(type);
  const Encoder encode_blocks = encoder(type);
  if (encode_blocks == nullptr) {
    throw std::invalid_argument("[quantize] no encoder for " + std::string(traits.name));
  }
  const std::size_t count = bytes.size() / static_cast<std::size_t>(traits.bytes);
  if (bytes.size() != count * static_cast<std::size_t>(traits.bytes) ||
      values.size() != count * static_cast<std::size_t>(traits.elements)) {
    throw std::invalid_argument("[quantize] " + std::to_string(values.size()) +
                                " values do not fill " + std::to_string(bytes.size()) +
                                " bytes of " + std::string(traits.name));
  }
  encode_blocks(values.data(), count, traits.elements, bytes.data());
}

}  // namespace espalier::quantization
