#include <bit>

#include "arrays/iq_grids.h"
#include "quantization/gguf_decoders.h"
#include "quantization/iq4_values.h"

namespace espalier::quantization {
namespace {

using namespace arrays;

std::uint32_t read_u32(const std::uint8_t* bytes) {
  std::uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// Eight signs in seven stored bits: the number of minus signs is even.
std::uint32_t even_signs(std::uint32_t stored) {
  return stored | (static_cast<std::uint32_t>(std::popcount(stored)) & 1U) << 7U;
}

float sign(std::uint32_t signs, int i) { return (signs >> i & 1U) != 0 ? -1.0F : 1.0F; }

/// Eight values of a grid of two-bit entries.
void decode_grid2(float scale, std::uint16_t entry, std::uint32_t signs, float* values) {
  constexpr float levels[4] = {8, 25, 43, 0};
  for (int i = 0; i < 8; ++i) values[i] = scale * levels[entry >> (2 * i) & 3] * sign(signs, i);
}

/// Four values of a grid of four-bit entries, indices of eight levels.
void decode_grid3(float scale, std::uint16_t entry, const float (&levels)[8], std::uint32_t signs,
                  float* values) {
  for (int i = 0; i < 4; ++i) values[i] = scale * levels[entry >> (4 * i) & 7] * sign(signs, i);
}

/// Eight ternary values, shifted by an eighth.
void decode_grid1(float scale, std::uint16_t entry, bool down, float* values) {
  const float shift = down ? -0.125F : 0.125F;
  for (int i = 0; i < 8; ++i) {
    values[i] = scale * (static_cast<float>((entry >> (2 * i) & 3) - 1) + shift);
  }
}

}  // namespace

void decode(const BlockIQ2_XXS& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int group = 0; group < 8; ++group) {
    const std::uint8_t* indices = block.quants + group * 8;
    const std::uint32_t packed = read_u32(indices + 4);
    const float own = scale * (0.5F + static_cast<float>(packed >> 28U)) * 0.25F;
    for (int i = 0; i < 4; ++i) {
      decode_grid2(own, iq2_xxs_grid[indices[i]], even_signs(packed >> (7 * i) & 0x7FU),
                   values + group * 32 + i * 8);
    }
  }
}

void decode(const BlockIQ2_XS& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 32; ++i) {
    const int own_scale = block.scales[i / 4] >> (i / 2 % 2 * 4) & 0xF;
    const float own = scale * (0.5F + static_cast<float>(own_scale)) * 0.25F;
    const std::uint16_t packed = block.quants[i];
    decode_grid2(own, iq2_xs_grid[packed & 511], even_signs(packed >> 9), values + i * 8);
  }
}

void decode(const BlockIQ2_S& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 32; ++i) {
    const int own_scale = block.scales[i / 4] >> (i / 2 % 2 * 4) & 0xF;
    const float own = scale * (0.5F + static_cast<float>(own_scale)) * 0.25F;
    const int index = block.quants[i] | (block.high_bits[i / 4] >> (i % 4 * 2) & 3) << 8;
    decode_grid2(own, iq2_s_grid[index], block.signs[i], values + i * 8);
  }
}

void decode(const BlockIQ3_XXS& block, float* values) {
  constexpr float levels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t packed = read_u32(block.signs_and_scales + i / 8 * 4);
    const float own = scale * (0.5F + static_cast<float>(packed >> 28U)) * 0.5F;
    const std::uint32_t signs = even_signs(packed >> (i / 2 % 4 * 7) & 0x7FU);
    decode_grid3(own, iq3_xxs_grid[block.quants[i]], levels, signs >> (i % 2 * 4), values + i * 4);
  }
}

void decode(const BlockIQ3_S& block, float* values) {
  constexpr float levels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 64; ++i) {
    const int own_scale = block.scales[i / 16] >> (i / 8 % 2 * 4) & 0xF;
    const float own = scale * static_cast<float>(1 + 2 * own_scale);
    const int index = block.quants[i] | (block.high_bits[i / 8] >> (i % 8) & 1) << 8;
    const std::uint32_t signs = block.signs[i / 2];
    decode_grid3(own, iq3_s_grid[index], levels, signs >> (i % 2 * 4), values + i * 4);
  }
}

void decode(const BlockIQ1_S& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 32; ++i) {
    const std::uint16_t high = block.high_bits[i / 4];
    const float own = scale * static_cast<float>(2 * (high >> 12 & 7) + 1);
    const int index = block.quants[i] | (high >> (i % 4 * 3) & 7) << 8;
    decode_grid1(own, iq1_grid[index], (high & 0x8000) != 0, values + i * 8);
  }
}

void decode(const BlockIQ1_M& block, float* values) {
  std::uint16_t scales[4];
  std::memcpy(scales, block.scales, sizeof scales);
  // The block's own scale lies in the top four bits of each word.
  const float scale =
      half_to_float(static_cast<std::uint16_t>(scales[0] >> 12 | (scales[1] & 0xF000) >> 8 |
                                               (scales[2] & 0xF000) >> 4 | (scales[3] & 0xF000)));
  for (int i = 0; i < 32; ++i) {
    const int own_scale = scales[i / 8] >> (i / 2 % 4 * 3) & 7;
    const float own = scale * static_cast<float>(2 * own_scale + 1);
    const int high = block.high_bits[i / 2] >> (i % 2 * 4);
    const int index = block.quants[i] | (high & 7) << 8;
    decode_grid1(own, iq1_grid[index], (high & 8) != 0, values + i * 8);
  }
}

void decode(const BlockIQ4_NL& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 32; ++i) {
    const int quant = block.quants[i % 16] >> (i / 16 * 4) & 0xF;
    values[i] = scale * static_cast<float>(iq4_values[quant]);
  }
}

void decode(const BlockIQ4_XS& block, float* values) {
  const float scale = half_to_float(block.scale_bits);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const int low = block.low_scales[group / 2] >> (group % 2 * 4) & 0xF;
    const int high = block.high_scales >> (group * 2) & 3;
    const float own = scale * static_cast<float>((low | high << 4) - 32);
    const int quant = block.quants[group * 16 + i % 16] >> (i / 16 % 2 * 4) & 0xF;
    values[i] = own * static_cast<float>(iq4_values[quant]);
  }
}

}  // namespace espalier::quantization
