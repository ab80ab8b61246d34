#include "kernels/block_codes.h"

#include <cstring>

#include "arrays/gguf_blocks.h"
#include "kernels/band_packing.h"
#include "kernels/gguf_block_readers.h"

namespace espalier::kernels {
namespace {

using namespace arrays;

constexpr std::uint16_t half_sign = 0x8000;

template <class T>
void set(std::uint8_t (&target)[4], const T& value) {
  static_assert(sizeof value <= sizeof target);
  std::memcpy(target, &value, sizeof value);
}

/// The first 16 codes in the low nibbles of 16 bytes, the others in the high ones.
void read_nibbles(const std::uint8_t* bytes, BlockCodes& result) {
  for (int i = 0; i < 16; ++i) {
    result.codes[i] = bytes[i] & 15;
    result.codes[16 + i] = bytes[i] >> 4;
  }
}

/// Codes of 2 bits of block `index`: 32 bytes hold 4 blocks, one above the other.
void read_pairs(const std::uint8_t* bytes, int index, BlockCodes& result) {
  for (int i = 0; i < 32; ++i) {
    result.codes[i] = bytes[index / 4 * 32 + i] >> (index % 4 * 2) & 3;
  }
}

/// The bits of a byte, each in a byte of its own, the lowest first.
std::uint64_t spread_bits(std::uint64_t byte) {
  return ((byte & 0x7f) * 0x02040810204081ULL & 0x0101010101010101ULL) | (byte & 0x80) << 49;
}

/// The types whose every 32 weights are a block by themselves.
template <class Block>
void read_nibble_block(const Block& block, BlockCodes& result) {
  if constexpr (requires { block.scale_bits; }) {
    set(result.scale, block.scale_bits);
  } else {
    set(result.scale, block.scale);
  }
  if constexpr (requires { block.minimum_bits; }) {
    set(result.minimum, block.minimum_bits);
  }
  constexpr std::uint64_t nibbles = 0x0f0f0f0f0f0f0f0fULL;
  for (int half = 0; half < 2; ++half) {
    std::uint64_t bytes;
    std::memcpy(&bytes, block.quants + half * 8, sizeof bytes);
    std::uint64_t low = bytes & nibbles;
    std::uint64_t high = bytes >> 4 & nibbles;
    if constexpr (requires { block.high_bits; }) {
      low |= spread_bits(block.high_bits[half]) << 4;
      high |= spread_bits(block.high_bits[2 + half]) << 4;
    }
    std::memcpy(result.codes + half * 8, &low, sizeof low);
    std::memcpy(result.codes + 16 + half * 8, &high, sizeof high);
  }
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
void read_q4_k(const Block& block, int index, BlockCodes& result) {
  set(result.scale, block.scale_bits);
  set(result.minimum, static_cast<std::uint16_t>(block.minimum_bits ^ half_sign));
  read_six_bit_scales(block.scales, index, result);
  for (int i = 0; i < 32; ++i) {
    result.codes[i] = block.quants[index / 2 * 32 + i] >> (index % 2 * 4) & 15;
    if constexpr (requires { block.high_bits; }) {
      result.codes[i] |= (block.high_bits[i] >> index & 1) << 4;
    }
  }
}

/// Five digits in a byte: it is their fraction of 243, rounded up in steps of 256.
int ternary_digit(std::uint8_t byte, int place) {
  constexpr int powers[5] = {1, 3, 9, 27, 81};
  return static_cast<std::uint8_t>(byte * powers[place]) * 3 >> 8;
}

}  // namespace

void read(const BlockQ4_0& block, int, BlockCodes& result) { read_nibble_block(block, result); }
void read(const BlockQ4_1& block, int, BlockCodes& result) { read_nibble_block(block, result); }
void read(const BlockQ5_0& block, int, BlockCodes& result) { read_nibble_block(block, result); }
void read(const BlockQ5_1& block, int, BlockCodes& result) { read_nibble_block(block, result); }
void read(const BlockIQ4_NL& block, int, BlockCodes& result) { read_nibble_block(block, result); }
void read(const BlockMXFP4& block, int, BlockCodes& result) { read_nibble_block(block, result); }
void read(const BlockQ4_K& block, int index, BlockCodes& result) {
  read_q4_k(block, index, result);
}
void read(const BlockQ5_K& block, int index, BlockCodes& result) {
  read_q4_k(block, index, result);
}

void read(const BlockQ8_0& block, int, BlockCodes& result) {
  set(result.scale, block.scale_bits);
  std::memcpy(result.codes, block.quants, sizeof result.codes);
}

void read(const BlockQ8_K& block, int index, BlockCodes& result) {
  set(result.scale, block.scale);
  std::memcpy(result.codes, block.quants + index * 32, sizeof result.codes);
}

void read(const BlockQ2_K& block, int index, BlockCodes& result) {
  set(result.scale, block.scale_bits);
  set(result.minimum, static_cast<std::uint16_t>(block.minimum_bits ^ half_sign));
  std::memcpy(result.sub_scales, block.scales + index * 2, sizeof result.sub_scales);
  read_pairs(block.quants, index, result);
}

void read(const BlockQ3_K& block, int index, BlockCodes& result) {
  set(result.scale, block.scale_bits);
  for (int half = 0; half < 2; ++half) {
    const int group = index * 2 + half;
    const int low = block.scales[group % 8] >> (group / 8 * 4) & 15;
    const int high = block.scales[8 + group % 4] >> (group / 4 * 2) & 3;
    result.sub_scales[half] = static_cast<std::uint8_t>((low | high << 4) - 32);
  }
  read_pairs(block.quants, index, result);
  for (int i = 0; i < 32; ++i) {
    result.codes[i] |= (block.high_mask[i] >> index & 1) << 2;
  }
}

/// Each half of the 8 blocks has 64 low and 32 high bytes, of which blocks 0 and 2 share the first
/// 32 low ones, 1 and 3 the others, and all four the high ones.
void read(const BlockQ6_K& block, int index, BlockCodes& result) {
  const int half = index / 4;
  const int quarter = index % 4;
  const std::uint8_t* low = block.low_bits + half * 64 + quarter % 2 * 32;
  const std::uint8_t* high = block.high_bits + half * 32;
  for (int i = 0; i < 32; ++i) {
    const int nibble = low[i] >> (quarter / 2 * 4) & 15;
    result.codes[i] = static_cast<std::uint8_t>(nibble | (high[i] >> (2 * quarter) & 3) << 4);
  }
  std::memcpy(result.sub_scales, block.scales + index * 2, sizeof result.sub_scales);
  set(result.scale, block.scale_bits);
}

void read(const BlockTQ1_0& block, int index, BlockCodes& result) {
  set(result.scale, block.scale_bits);
  for (int i = 0; i < 32; ++i) {
    const int position = index * 32 + i;
    int digit;
    if (position < 160) {
      digit = ternary_digit(block.quants[i], index);
    } else if (position < 240) {
      digit = ternary_digit(block.quants[32 + i % 16], (position - 160) / 16);
    } else {
      digit = ternary_digit(block.rest[i % 4], (position - 240) / 4);
    }
    result.codes[i] = static_cast<std::uint8_t>(digit);
  }
}

void read(const BlockTQ2_0& block, int index, BlockCodes& result) {
  set(result.scale, block.scale_bits);
  read_pairs(block.quants, index, result);
}

void read(const BlockNVFP4& block, int index, BlockCodes& result) {
  for (int half = 0; half < 2; ++half) {
    const int group = index % 2 * 2 + half;
    const std::uint8_t scale = block.scales[group];
    // The sign counts for nothing, and what would not be a number is 0.
    result.sub_scales[half] = scale == 0x7F ? 0 : scale & 0x7F;
    for (int i = 0; i < 16; ++i) {
      result.codes[half * 16 + i] = block.quants[group * 8 + i % 8] >> (i / 8 * 4) & 15;
    }
  }
}

void read(const BlockIQ4_XS& block, int index, BlockCodes& result) {
  set(result.scale, block.scale_bits);
  const int low = block.low_scales[index / 2] >> (index % 2 * 4) & 15;
  const int high = block.high_scales >> (index * 2) & 3;
  result.sub_scales[0] = static_cast<std::uint8_t>((low | high << 4) - 32);
  result.sub_scales[1] = 0;
  read_nibbles(block.quants + index * 16, result);
}

namespace {

/// Calls `use(block, index)` for blocks (of 32 weights) first .. first + count of a row, where they
/// lie, since copying a whole one costs more than what is read of it, unless the file put them at
/// an odd address. One of GGUF's has `blocks` of them, of which it is number `index`.
template <class Block, class Use>
void for_blocks(const std::uint8_t* row, int first, int count, int blocks, const Use& use) {
  for (int i = first; i < first + count; ++i) {
    const std::uint8_t* bytes = row + static_cast<std::ptrdiff_t>(i / blocks) * sizeof(Block);
    if (reinterpret_cast<std::uintptr_t>(bytes) % alignof(Block) == 0) {
      use(*reinterpret_cast<const Block*>(bytes), i % blocks);
    } else {
      Block block;
      std::memcpy(&block, bytes, sizeof block);
      use(block, i % blocks);
    }
  }
}

template <class Block>
void read_from_row(const std::uint8_t* row, int first, int count, int blocks, BlockCodes* codes) {
  for_blocks<Block>(row, first, count, blocks,
                    [&](const Block& block, int index) { read(block, index, *codes++); });
}

/// Flattened, so that codes stay in registers between their reader and the band.
template <class Block, class Format, int blocks>
[[gnu::flatten]] void pack_row(const std::uint8_t* row, int first, int count, int lane,
                               std::uint8_t* band) {
  for_blocks<Block>(row, first, count, blocks, [&](const Block& block, int index) {
    BlockCodes codes;
    read(block, index, codes);
    pack_block<Format>(codes, Format::header, first++, lane, band);
  });
}

/// What a type is packed as, and by what functions.
struct GgufPacking {
  StorageType storage;
  BandType band;
  void (*read)(const std::uint8_t* row, int first, int count, int blocks, BlockCodes* codes);
  RowPacker pack = nullptr;  // of the types most used
};

constexpr GgufPacking packings[] = {
    {StorageType::q4_0, BandType::q4_0, read_from_row<BlockQ4_0>, pack_row<BlockQ4_0, BandQ4_0, 1>},
    {StorageType::q4_1, BandType::q4_1, read_from_row<BlockQ4_1>, pack_row<BlockQ4_1, BandQ4_1, 1>},
    {StorageType::q5_0, BandType::q5_0, read_from_row<BlockQ5_0>, pack_row<BlockQ5_0, BandQ5_0, 1>},
    {StorageType::q5_1, BandType::q5_1, read_from_row<BlockQ5_1>, pack_row<BlockQ5_1, BandQ5_1, 1>},
    {StorageType::q8_0, BandType::q8_0, read_from_row<BlockQ8_0>, pack_row<BlockQ8_0, BandQ8_0, 1>},
    {StorageType::q2_k, BandType::q2_k, read_from_row<BlockQ2_K>, pack_row<BlockQ2_K, BandQ2K, 8>},
    {StorageType::q3_k, BandType::q3_k, read_from_row<BlockQ3_K>, pack_row<BlockQ3_K, BandQ3K, 8>},
    {StorageType::q4_k, BandType::q4_k, read_from_row<BlockQ4_K>, pack_row<BlockQ4_K, BandQ4K, 8>},
    {StorageType::q5_k, BandType::q5_k, read_from_row<BlockQ5_K>, pack_row<BlockQ5_K, BandQ5K, 8>},
    {StorageType::q6_k, BandType::q6_k, read_from_row<BlockQ6_K>, pack_row<BlockQ6_K, BandQ6K, 8>},
    {StorageType::q8_k, BandType::int8, read_from_row<BlockQ8_K>},
    {StorageType::iq1_s, BandType::iq1, read_from_row<BlockIQ1_S>},
    {StorageType::iq1_m, BandType::iq1, read_from_row<BlockIQ1_M>},
    {StorageType::iq2_xxs, BandType::iq2, read_from_row<BlockIQ2_XXS>},
    {StorageType::iq2_xs, BandType::iq2, read_from_row<BlockIQ2_XS>},
    {StorageType::iq2_s, BandType::iq2, read_from_row<BlockIQ2_S>},
    {StorageType::iq3_xxs, BandType::iq3_xxs, read_from_row<BlockIQ3_XXS>},
    {StorageType::iq3_s, BandType::iq3_s, read_from_row<BlockIQ3_S>},
    {StorageType::iq4_nl, BandType::iq4_nl, read_from_row<BlockIQ4_NL>},
    {StorageType::iq4_xs, BandType::iq4_xs, read_from_row<BlockIQ4_XS>},
    {StorageType::tq1_0, BandType::ternary, read_from_row<BlockTQ1_0>},
    {StorageType::tq2_0, BandType::ternary, read_from_row<BlockTQ2_0>},
    {StorageType::mxfp4, BandType::mxfp4, read_from_row<BlockMXFP4>},
    {StorageType::nvfp4, BandType::nvfp4, read_from_row<BlockNVFP4>},
};

const GgufPacking* find_packing(StorageType type) {
  for (const GgufPacking& packing : packings) {
    if (packing.storage == type) {
      return &packing;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<BandLayout> gguf_layout(StorageType type) {
  const GgufPacking* packing = find_packing(type);
  if (packing == nullptr) {
    return std::nullopt;
  }
  return BandLayout{packing->band, default_header(packing->band)};
}

void read_gguf_blocks(StorageType type, const std::uint8_t* row, int first, int count,
                      BlockCodes* codes) {
  const int blocks = storage_traits(type).elements / block_inputs;
  find_packing(type)->read(row, first, count, blocks, codes);
}

RowPacker gguf_row_packer(StorageType type) { return find_packing(type)->pack; }

}  // namespace espalier::kernels
