// The types whose codes are indices into grids of 4 or 8 values: each value becomes a code of its
// own, its level with the sign above.
#include <bit>
#include <cstring>

#include "arrays/iq_grids.h"
#include "kernels/gguf_block_readers.h"

namespace espalier::kernels {
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

/// `count` entries of `bits` bits each, with a bit of `above` over every one.
template <int count, int bits, int above_place>
void read_entry(std::uint16_t entry, std::uint32_t above, std::uint8_t* codes) {
  for (int i = 0; i < count; ++i) {
    const auto level = static_cast<std::uint32_t>(entry >> (bits * i)) & ((1U << above_place) - 1);
    codes[i] = static_cast<std::uint8_t>(level | (above >> i & 1U) << above_place);
  }
}

void read_grid2(std::uint16_t entry, std::uint32_t signs, std::uint8_t* codes) {
  read_entry<8, 2, 2>(entry, signs, codes);
}

void read_grid3(std::uint16_t entry, std::uint32_t signs, std::uint8_t* codes) {
  read_entry<4, 4, 3>(entry, signs, codes);
}

/// Ternary digits, all shifted the same way.
void read_grid1(std::uint16_t entry, bool down, std::uint8_t* codes) {
  read_entry<8, 2, 2>(entry, down ? 0xFF : 0, codes);
}

/// Sub-scales are stored as half of what is above one.
void set_odd_scales(int first, int last, BlockCodes& result) {
  result.sub_scales[0] = static_cast<std::uint8_t>(2 * first + 1);
  result.sub_scales[1] = static_cast<std::uint8_t>(2 * last + 1);
}

}  // namespace

void read(const BlockIQ2_XXS& block, int index, BlockCodes& result) {
  std::memcpy(result.scale, &block.scale_bits, 2);
  const std::uint8_t* indices = block.quants + index * 8;
  const std::uint32_t packed = read_u32(indices + 4);
  const auto scale = static_cast<int>(packed >> 28U);
  set_odd_scales(scale, scale, result);
  for (int i = 0; i < 4; ++i) {
    read_grid2(iq2_xxs_grid[indices[i]], even_signs(packed >> (7 * i) & 0x7FU),
               result.codes + i * 8);
  }
}

void read(const BlockIQ2_XS& block, int index, BlockCodes& result) {
  std::memcpy(result.scale, &block.scale_bits, 2);
  set_odd_scales(block.scales[index] & 15, block.scales[index] >> 4, result);
  for (int i = 0; i < 4; ++i) {
    const std::uint16_t packed = block.quants[index * 4 + i];
    read_grid2(iq2_xs_grid[packed & 511], even_signs(packed >> 9), result.codes + i * 8);
  }
}

void read(const BlockIQ2_S& block, int index, BlockCodes& result) {
  std::memcpy(result.scale, &block.scale_bits, 2);
  set_odd_scales(block.scales[index] & 15, block.scales[index] >> 4, result);
  for (int i = 0; i < 4; ++i) {
    const int entry = block.quants[index * 4 + i] | (block.high_bits[index] >> (i * 2) & 3) << 8;
    read_grid2(iq2_s_grid[entry], block.signs[index * 4 + i], result.codes + i * 8);
  }
}

void read(const BlockIQ3_XXS& block, int index, BlockCodes& result) {
  std::memcpy(result.scale, &block.scale_bits, 2);
  const std::uint32_t packed = read_u32(block.signs_and_scales + index * 4);
  result.sub_scales[0] = static_cast<std::uint8_t>(2 * (packed >> 28U) + 1);
  result.sub_scales[1] = 0;
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t signs = even_signs(packed >> (i / 2 * 7) & 0x7FU);
    read_grid3(iq3_xxs_grid[block.quants[index * 8 + i]], signs >> (i % 2 * 4),
               result.codes + i * 4);
  }
}

void read(const BlockIQ3_S& block, int index, BlockCodes& result) {
  std::memcpy(result.scale, &block.scale_bits, 2);
  const int scale = block.scales[index / 2] >> (index % 2 * 4) & 15;
  result.sub_scales[0] = static_cast<std::uint8_t>(2 * scale + 1);
  result.sub_scales[1] = 0;
  for (int i = 0; i < 8; ++i) {
    const int entry = block.quants[index * 8 + i] | (block.high_bits[index] >> i & 1) << 8;
    const std::uint32_t signs = block.signs[index * 4 + i / 2];
    read_grid3(iq3_s_grid[entry], signs >> (i % 2 * 4), result.codes + i * 4);
  }
}

void read(const BlockIQ1_S& block, int index, BlockCodes& result) {
  std::memcpy(result.scale, &block.scale_bits, 2);
  const std::uint16_t high = block.high_bits[index];
  set_odd_scales(high >> 12 & 7, high >> 12 & 7, result);
  for (int i = 0; i < 4; ++i) {
    const int entry = block.quants[index * 4 + i] | (high >> (i * 3) & 7) << 8;
    read_grid1(iq1_grid[entry], (high & 0x8000) != 0, result.codes + i * 8);
  }
}

void read(const BlockIQ1_M& block, int index, BlockCodes& result) {
  std::uint16_t scales[4];
  std::memcpy(scales, block.scales, sizeof scales);
  // The block's own scale lies in the top four bits of each word.
  const auto scale = static_cast<std::uint16_t>(scales[0] >> 12 | (scales[1] & 0xF000) >> 8 |
                                                (scales[2] & 0xF000) >> 4 | (scales[3] & 0xF000));
  std::memcpy(result.scale, &scale, sizeof scale);
  const int own = scales[index / 2] >> (index % 2 * 6);
  set_odd_scales(own & 7, own >> 3 & 7, result);
  for (int i = 0; i < 4; ++i) {
    const int high = block.high_bits[index * 2 + i / 2] >> (i % 2 * 4);
    const int entry = block.quants[index * 4 + i] | (high & 7) << 8;
    read_grid1(iq1_grid[entry], (high & 8) != 0, result.codes + i * 8);
  }
}

}  // namespace espalier::kernels
