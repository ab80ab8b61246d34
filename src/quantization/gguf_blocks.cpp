#include "quantization/gguf_blocks.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "quantization/gguf_decoders.h"

namespace espalier::quantization {
namespace {

using arrays::StorageType;

/// Decodes `count` quantization blocks of `elements` values each.
using Decoder = void (*)(const std::byte* bytes, std::size_t count, int elements, float* values);

template <typename Block>
void decode_all(const std::byte* bytes, std::size_t count, int elements, float* values) {
  for (std::size_t i = 0; i < count; ++i) {
    Block block;
    std::memcpy(&block, bytes + i * sizeof(Block), sizeof(Block));
    decode(block, values + i * elements);
  }
}

void decode_f32(const std::byte* bytes, std::size_t count, int, float* values) {
  std::memcpy(values, bytes, count * sizeof(float));
}

void decode_f16(const std::byte* bytes, std::size_t count, int, float* values) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
    values[i] = half_to_float(bits);
  }
}

void decode_bf16(const std::byte* bytes, std::size_t count, int, float* values) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
}

Decoder decoder(StorageType type) {
  using namespace arrays;
  switch (type) {
    case StorageType::f32:
      return decode_f32;
    case StorageType::f16:
      return decode_f16;
    case StorageType::bf16:
      return decode_bf16;
    case StorageType::q4_0:
      return decode_all<BlockQ4_0>;
    case StorageType::q4_1:
      return decode_all<BlockQ4_1>;
    case StorageType::q5_0:
      return decode_all<BlockQ5_0>;
    case StorageType::q5_1:
      return decode_all<BlockQ5_1>;
    case StorageType::q8_0:
      return decode_all<BlockQ8_0>;
    case StorageType::q2_k:
      return decode_all<BlockQ2_K>;
    case StorageType::q3_k:
      return decode_all<BlockQ3_K>;
    case StorageType::q4_k:
      return decode_all<BlockQ4_K>;
    case StorageType::q5_k:
      return decode_all<BlockQ5_K>;
    case StorageType::q6_k:
      return decode_all<BlockQ6_K>;
    case StorageType::q8_k:
      return decode_all<BlockQ8_K>;
    case StorageType::iq1_s:
      return decode_all<BlockIQ1_S>;
    case StorageType::iq1_m:
      return decode_all<BlockIQ1_M>;
    case StorageType::iq2_xxs:
      return decode_all<BlockIQ2_XXS>;
    case StorageType::iq2_xs:
      return decode_all<BlockIQ2_XS>;
    case StorageType::iq2_s:
      return decode_all<BlockIQ2_S>;
    case StorageType::iq3_xxs:
      return decode_all<BlockIQ3_XXS>;
    case StorageType::iq3_s:
      return decode_all<BlockIQ3_S>;
    case StorageType::iq4_nl:
      return decode_all<BlockIQ4_NL>;
    case StorageType::iq4_xs:
      return decode_all<BlockIQ4_XS>;
    case StorageType::tq1_0:
      return decode_all<BlockTQ1_0>;
    case StorageType::tq2_0:
      return decode_all<BlockTQ2_0>;
    case StorageType::mxfp4:
      return decode_all<BlockMXFP4>;
    case StorageType::nvfp4:
      return decode_all<BlockNVFP4>;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_dequantize(StorageType type) { return decoder(type) != nullptr; }

void dequantize(StorageType type, std::span<const std::byte> bytes, std::span<float> values) {
  const arrays::StorageTraits& traits = arrays::storage_traits(type);
  const Decoder decode_blocks = decoder(type);
  if (decode_blocks == nullptr) {
    throw std::invalid_argument("[dequantize] no decoder for " + std::string(traits.name));
  }
  const std::size_t count = bytes.size() / traits.bytes;
  if (bytes.size() % traits.bytes != 0 || values.size() != count * traits.elements) {
    throw std::invalid_argument("[dequantize] " + std::to_string(bytes.size()) + " bytes of " +
                                std::string(traits.name) + " are not " +
                                std::to_string(values.size()) + " values");
  }
  decode_blocks(bytes.data(), count, traits.elements, values.data());
}

}  // namespace espalier::quantization
