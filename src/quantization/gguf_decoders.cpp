#include "quantization/gguf_decoders.h"

#include <bit>

namespace espalier::quantization {
namespace {

using namespace arrays;

/// The 4-bit value at position i of 32 in 16 bytes: low halves first, then high ones.
int nibble(const std::uint8_t* quants, int i) { return quants[i % 16] >> (i / 16 * 4) & 0xF; }

/// The fifth bits of 32 values.
std::uint32_t read_bits(const std::uint8_t (&bytes)[4]) {
  std::uint32_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

/// The 6-bit scale and minimum of group g of 8 in Q4_K and Q5_K, multiplied into the block's own.
struct GroupScale {
  float scale;
  float minimum;
};

GroupScale group_scale(const std::uint8_t (&packed)[12], int group, float scale, float minimum) {
  int s;
  int m;
  if (group < 4) {
    s = packed[group] & 0x3F;
    m = packed[group + 4] & 0x3F;
  } else {
    s = (packed[group + 4] & 0xF) | (packed[group - 4] >> 6 << 4);
    m = (packed[group + 4] >> 4) | (packed[group] >> 6 << 4);
  }
  return {scale * static_cast<float>(s), minimum * static_cast<float>(m)};
}

/// Values of the four-bit float e2m1, doubled so that they are integers.
constexpr std::int8_t doubled_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// 2^(exponent - 128): half of what the byte stands for, to go with `doubled_e2m1`.
float half_of_e8m0(std::uint8_t exponent) {
  const std::uint32_t bits =
      exponent < 2 ? 0x00200000U << exponent : static_cast<std::uint32_t>(exponent - 1) << 23U;
  return std::bit_cast<float>(bits);
}

/// Half the value of an unsigned e4m3 float.
float half_of_e4m3(std::uint8_t bits) {
  if (bits == 0x7F) return 0.0F;
  const int exponent = bits >> 3 & 0xF;
  const auto mantissa = static_cast<float>(bits & 0x7);
  if (exponent == 0) return mantissa * 0x1p-9F * 0.5F;
  return (1.0F + mantissa / 8.0F) * std::bit_cast<float>((exponent - 7 + 127) << 23) * 0.5F;
}

}  // namespace

void decode(const BlockQ4_0& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 32; ++i) values[i] = scale * static_cast<float>(nibble(block.quants, i) - 8);
}

void decode(const BlockQ4_1& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  const float minimum = half_to_float(block.minimum_bits);
  for (int i = 0; i < 32; ++i) {
    values[i] = scale * static_cast<float>(nibble(block.quants, i)) + minimum;
  }
}

void decode(const BlockQ5_0& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  const std::uint32_t high = read_bits(block.high_bits);
  for (int i = 0; i < 32; ++i) {
    const int quant = nibble(block.quants, i) | static_cast<int>((high >> i & 1U) << 4U);
    values[i] = scale * static_cast<float>(quant - 16);
  }
}

void decode(const BlockQ5_1& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  const float minimum = half_to_float(block.minimum_bits);
  const std::uint32_t high = read_bits(block.high_bits);
  for (int i = 0; i < 32; ++i) {
    const int quant = nibble(block.quants, i) | static_cast<int>((high >> i & 1U) << 4U);
    values[i] = scale * static_cast<float>(quant) + minimum;
  }
}

void decode(const BlockQ8_0& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 32; ++i) values[i] = scale * static_cast<float>(block.quants[i]);
}

void decode(const BlockQ2_K& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  const float minimum = half_to_float(block.minimum_bits);
  for (int i = 0; i < 256; ++i) {
    const std::uint8_t group = block.scales[i / 16];
    const int quant = block.quants[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    values[i] = scale * static_cast<float>(group & 0xF) * static_cast<float>(quant) -
                minimum * static_cast<float>(group >> 4);
  }
}

void decode(const BlockQ3_K& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    const int low = block.scales[group % 8] >> (group / 8 * 4) & 0xF;
    const int high = block.scales[8 + group % 4] >> (group / 4 * 2) & 3;
    const int quant = block.quants[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    const bool kept = (block.high_mask[i % 32] >> (i / 32) & 1) != 0;
    values[i] = scale * static_cast<float>((low | high << 4) - 32) *
                static_cast<float>(kept ? quant : quant - 4);
  }
}

void decode(const BlockQ4_K& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  const float minimum = half_to_float(block.minimum_bits);
  for (int group = 0; group < 8; ++group) {
    const GroupScale own = group_scale(block.scales, group, scale, minimum);
    for (int i = 0; i < 32; ++i) {
      const int quant = block.quants[group / 2 * 32 + i] >> (group % 2 * 4) & 0xF;
      values[group * 32 + i] = own.scale * static_cast<float>(quant) - own.minimum;
    }
  }
}

void decode(const BlockQ5_K& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  const float minimum = half_to_float(block.minimum_bits);
  for (int group = 0; group < 8; ++group) {
    const GroupScale own = group_scale(block.scales, group, scale, minimum);
    for (int i = 0; i < 32; ++i) {
      const int low = block.quants[group / 2 * 32 + i] >> (group % 2 * 4) & 0xF;
      const int high = block.high_bits[i] >> group & 1;
      values[group * 32 + i] = own.scale * static_cast<float>(low | high << 4) - own.minimum;
    }
  }
}

void decode(const BlockQ6_K& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 256; ++i) {
    const int low = block.low_bits[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 0xF;
    const int high = block.high_bits[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    values[i] = scale * static_cast<float>(block.scales[i / 16]) *
                static_cast<float>((low | high << 4) - 32);
  }
}

void decode(const BlockQ8_K& block, float* values) {
  for (int i = 0; i < 256; ++i) values[i] = block.scale * static_cast<float>(block.quants[i]);
}

void decode(const BlockTQ1_0& block, float* values) {
  constexpr std::uint8_t powers[5] = {1, 3, 9, 27, 81};
  const float scale = half_to_float(block.scale_bits);
  // A byte times a power of three, modulo 256, is a fraction whose first ternary digit is wanted.
  const auto digit = [&](std::uint8_t byte, int place) {
    const auto fraction = static_cast<std::uint8_t>(byte * powers[place]);
    return scale * static_cast<float>((fraction * 3 >> 8) - 1);
  };
  for (int i = 0; i < 160; ++i) values[i] = digit(block.quants[i % 32], i / 32);
  for (int i = 0; i < 80; ++i) values[160 + i] = digit(block.quants[32 + i % 16], i / 16);
  for (int i = 0; i < 16; ++i) values[240 + i] = digit(block.rest[i % 4], i / 4);
}

void decode(const BlockTQ2_0& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 256; ++i) {
    const int quant = block.quants[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    values[i] = scale * static_cast<float>(quant - 1);
  }
}

void decode(const BlockMXFP4& block, float* values) {
  const float scale = half_of_e8m0(block.scale);
  for (int i = 0; i < 32; ++i) {
    values[i] = scale * static_cast<float>(doubled_e2m1[nibble(block.quants, i)]);
  }
}

void decode(const BlockNVFP4& block, float* values) {
  for (int i = 0; i < 64; ++i) {
    const int group = i / 16;
    const int quant = block.quants[group * 8 + i % 8] >> (i / 8 % 2 * 4) & 0xF;
    values[i] = half_of_e4m3(block.scales[group]) * static_cast<float>(doubled_e2m1[quant]);
  }
}

}  // namespace espalier::quantization
