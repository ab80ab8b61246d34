#include "kernels/block_codes.h"

#include <cstring>

#include "arrays/gguf_blocks.h"

namespace espalier::kernels {
namespace {

using arrays::StorageType;

constexpr std::uint16_t half_sign = 0x8000;

/// The bits of a byte, each in a byte of its own, the lowest first.
std::uint64_t spread_bits(std::uint64_t byte) {
  return ((byte & 0x7f) * 0x02040810204081ULL & 0x0101010101010101ULL) | (byte & 0x80) << 49;
}

/// The first 16 codes in the low nibbles of 16 bytes, the others in the high ones.
void read_nibbles(const std::uint8_t (&bytes)[16], BlockCodes& result) {
  for (int i = 0; i < 16; ++i) {
    result.codes[i] = bytes[i] & 15;
    result.codes[16 + i] = bytes[i] >> 4;
  }
}

/// q4_0, q4_1, q5_0, q5_1.
template <class Block>
BlockCodes read_legacy(const Block& block) {
  BlockCodes result{};
  result.scale = block.scale_bits;
  if constexpr (requires { block.minimum_bits; }) {
    result.minimum = block.minimum_bits;
  }
  read_nibbles(block.quants, result);
  if constexpr (requires { block.high_bits; }) {
    for (int byte = 0; byte < 4; ++byte) {
      std::uint64_t codes;
      std::memcpy(&codes, result.codes + byte * 8, sizeof codes);
      codes |= spread_bits(block.high_bits[byte]) << 4;
      std::memcpy(result.codes + byte * 8, &codes, sizeof codes);
    }
  }
  return result;
}

BlockCodes read_q8_0(const arrays::BlockQ8_0& block) {
  BlockCodes result{};
  result.scale = block.scale_bits;
  std::memcpy(result.codes, block.quants, sizeof result.codes);
  return result;
}

/// The 6-bit scale and minimum of one of 8 blocks.
void read_six_bit_scales(const std::uint8_t (&bytes)[12], int index, BlockCodes& result) {
  if (index < 4) {
    result.sub_scales[0] = bytes[index] & 63;
    result.sub_scales[1] = bytes[index + 4] & 63;
  } else {
    result.sub_scales[0] = (bytes[index + 4] & 15) | (bytes[index - 4] >> 6) << 4;
    result.sub_scales[1] = (bytes[index + 4] >> 4) | (bytes[index] >> 6) << 4;
  }
}

/// q4_k and q5_k: a pair of blocks shares 32 bytes, the even one in the low nibbles.
template <class Block>
BlockCodes read_q4_k(const Block& block, int index) {
  BlockCodes result{};
  result.scale = block.scale_bits;
  result.minimum = block.minimum_bits ^ half_sign;
  read_six_bit_scales(block.scales, index, result);
  for (int i = 0; i < 32; ++i) {
    result.codes[i] = block.quants[index / 2 * 32 + i] >> (index % 2 * 4) & 15;
    if constexpr (requires { block.high_bits; }) {
      result.codes[i] |= (block.high_bits[i] >> index & 1) << 4;
    }
  }
  return result;
}

/// Each half of the 8 blocks has 64 low and 32 high bytes, of which blocks 0 and 2 share the first
/// 32 low ones, 1 and 3 the others, and all four the high ones.
BlockCodes read_q6_k(const arrays::BlockQ6_K& block, int index) {
  BlockCodes result{};
  const int half = index / 4;
  const int quarter = index % 4;
  const std::uint8_t* low = block.low_bits + half * 64 + quarter % 2 * 32;
  const std::uint8_t* high = block.high_bits + half * 32;
  for (int i = 0; i < 32; ++i) {
    const int nibble = low[i] >> (quarter / 2 * 4) & 15;
    result.codes[i] = static_cast<std::uint8_t>(nibble | (high[i] >> (2 * quarter) & 3) << 4);
  }
  std::memcpy(result.sub_scales, block.scales + index * 2, sizeof result.sub_scales);
  result.scale = block.scale_bits;
  return result;
}

template <class Block>
Block copy_block(const std::uint8_t* row, int index) {
  Block block;
  std::memcpy(&block, row + static_cast<std::ptrdiff_t>(index) * sizeof block, sizeof block);
  return block;
}

}  // namespace

void read_blocks(StorageType type, const std::uint8_t* row, int first, int count,
                 BlockCodes* codes) {
  const auto read_each = [&](auto read) {
    for (int i = 0; i < count; ++i) codes[i] = read(first + i);
  };
  switch (type) {
    case StorageType::q4_0:
      return read_each([row](int i) { return read_legacy(copy_block<arrays::BlockQ4_0>(row, i)); });
    case StorageType::q4_1:
      return read_each([row](int i) { return read_legacy(copy_block<arrays::BlockQ4_1>(row, i)); });
    case StorageType::q5_0:
      return read_each([row](int i) { return read_legacy(copy_block<arrays::BlockQ5_0>(row, i)); });
    case StorageType::q5_1:
      return read_each([row](int i) { return read_legacy(copy_block<arrays::BlockQ5_1>(row, i)); });
    case StorageType::q4_k:
      return read_each(
          [row](int i) { return read_q4_k(copy_block<arrays::BlockQ4_K>(row, i / 8), i % 8); });
    case StorageType::q5_k:
      return read_each(
          [row](int i) { return read_q4_k(copy_block<arrays::BlockQ5_K>(row, i / 8), i % 8); });
    case StorageType::q6_k:
      return read_each(
          [row](int i) { return read_q6_k(copy_block<arrays::BlockQ6_K>(row, i / 8), i % 8); });
    default:
      return read_each([row](int i) { return read_q8_0(copy_block<arrays::BlockQ8_0>(row, i)); });
  }
}

}  // namespace espalier::kernels
