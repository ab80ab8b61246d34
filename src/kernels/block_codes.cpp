#include "kernels/block_codes.h"

#include <cstddef>
#include <cstring>

#include "arrays/gguf_blocks.h"

namespace espalier::kernels {
namespace {

using arrays::StorageType;

constexpr std::uint16_t half_sign = 0x8000;

/// A field of a quantization block in the file. Blocks lie there at any address, and copying a
/// whole one first costs more than what is read of it.
template <class T>
T load(const std::uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// The bits of a byte, each in a byte of its own, the lowest first.
std::uint64_t spread_bits(std::uint64_t byte) {
  return ((byte & 0x7f) * 0x02040810204081ULL & 0x0101010101010101ULL) | (byte & 0x80) << 49;
}

/// q4_0, q4_1, q5_0, q5_1: the first 16 codes in the low nibbles of 16 bytes, the others in the
/// high ones.
template <class Block>
void read_legacy(const std::uint8_t* row, int index, BlockCodes& result) {
  const std::uint8_t* block = row + index * sizeof(Block);
  result.scale = load<std::uint16_t>(block + offsetof(Block, scale_bits));
  if constexpr (requires { Block::minimum_bits; }) {
    result.minimum = load<std::uint16_t>(block + offsetof(Block, minimum_bits));
  }
  constexpr std::uint64_t nibbles = 0x0f0f0f0f0f0f0f0fULL;
  for (int half = 0; half < 2; ++half) {
    const auto bytes = load<std::uint64_t>(block + offsetof(Block, quants) + half * 8);
    std::uint64_t low = bytes & nibbles;
    std::uint64_t high = bytes >> 4 & nibbles;
    if constexpr (requires { Block::high_bits; }) {
      low |= spread_bits(block[offsetof(Block, high_bits) + half]) << 4;
      high |= spread_bits(block[offsetof(Block, high_bits) + 2 + half]) << 4;
    }
    std::memcpy(result.codes + half * 8, &low, sizeof low);
    std::memcpy(result.codes + 16 + half * 8, &high, sizeof high);
  }
}

void read_q8_0(const std::uint8_t* row, int index, BlockCodes& result) {
  using Block = arrays::BlockQ8_0;
  const std::uint8_t* block = row + index * sizeof(Block);
  result.scale = load<std::uint16_t>(block + offsetof(Block, scale_bits));
  std::memcpy(result.codes, block + offsetof(Block, quants), sizeof result.codes);
}

/// The 6-bit scale and minimum of one of 8 blocks, from 12 bytes.
void read_six_bit_scales(const std::uint8_t* bytes, int index, BlockCodes& result) {
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
void read_q4_k(const std::uint8_t* row, int index_in_row, BlockCodes& result) {
  const std::uint8_t* block = row + index_in_row / 8 * sizeof(Block);
  const int index = index_in_row % 8;
  result.scale = load<std::uint16_t>(block + offsetof(Block, scale_bits));
  result.minimum = load<std::uint16_t>(block + offsetof(Block, minimum_bits)) ^ half_sign;
  read_six_bit_scales(block + offsetof(Block, scales), index, result);
  const std::uint8_t* low = block + offsetof(Block, quants) + index / 2 * 32;
  for (int i = 0; i < 32; ++i) {
    result.codes[i] = low[i] >> (index % 2 * 4) & 15;
    if constexpr (requires { Block::high_bits; }) {
      result.codes[i] |= (block[offsetof(Block, high_bits) + i] >> index & 1) << 4;
    }
  }
}

/// Each half of the 8 blocks has 64 low and 32 high bytes, of which blocks 0 and 2 share the first
/// 32 low ones, 1 and 3 the others, and all four the high ones.
void read_q6_k(const std::uint8_t* row, int index_in_row, BlockCodes& result) {
  using Block = arrays::BlockQ6_K;
  const std::uint8_t* block = row + index_in_row / 8 * sizeof(Block);
  const int index = index_in_row % 8;
  const int half = index / 4;
  const int quarter = index % 4;
  const std::uint8_t* low = block + offsetof(Block, low_bits) + half * 64 + quarter % 2 * 32;
  const std::uint8_t* high = block + offsetof(Block, high_bits) + half * 32;
  for (int i = 0; i < 32; ++i) {
    const int nibble = low[i] >> (quarter / 2 * 4) & 15;
    result.codes[i] = static_cast<std::uint8_t>(nibble | (high[i] >> (2 * quarter) & 3) << 4);
  }
  std::memcpy(result.sub_scales, block + offsetof(Block, scales) + index * 2,
              sizeof result.sub_scales);
  result.scale = load<std::uint16_t>(block + offsetof(Block, scale_bits));
}

/// Reads one block of a row.
using Reader = void(const std::uint8_t* row, int index, BlockCodes& result);

template <Reader read>
void read_each(const std::uint8_t* row, int first, int count, BlockCodes* codes) {
  for (int i = 0; i < count; ++i) read(row, first + i, codes[i]);
}

}  // namespace

void read_blocks(StorageType type, const std::uint8_t* row, int first, int count,
                 BlockCodes* codes) {
  switch (type) {
    case StorageType::q4_0:
      return read_each<read_legacy<arrays::BlockQ4_0>>(row, first, count, codes);
    case StorageType::q4_1:
      return read_each<read_legacy<arrays::BlockQ4_1>>(row, first, count, codes);
    case StorageType::q5_0:
      return read_each<read_legacy<arrays::BlockQ5_0>>(row, first, count, codes);
    case StorageType::q5_1:
      return read_each<read_legacy<arrays::BlockQ5_1>>(row, first, count, codes);
    case StorageType::q4_k:
      return read_each<read_q4_k<arrays::BlockQ4_K>>(row, first, count, codes);
    case StorageType::q5_k:
      return read_each<read_q4_k<arrays::BlockQ5_K>>(row, first, count, codes);
    case StorageType::q6_k:
      return read_each<read_q6_k>(row, first, count, codes);
    default:
      return read_each<read_q8_0>(row, first, count, codes);
  }
}

}  // namespace espalier::kernels
