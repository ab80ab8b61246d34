#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "arrays/tensor_file.h"
#include "kernels/block_codes.h"

namespace espalier::kernels {

// How 32 weights of a row come into a band. Packing a model is most of a start, and what it costs
// is instructions: some 15 cycles for 32 weights of 4 bits where the reader of their source is
// compiled into this, four times that through a function and memory.

inline void store_word(std::uint8_t* target, std::uint64_t word) {
  const auto bytes = static_cast<std::uint32_t>(word);
  std::memcpy(target, &bytes, sizeof bytes);
}

/// Writes the codes of 32 inputs, one in each byte of `codes`, into a lane. Eight at a time, those
/// of one group in the lower and of the next in the upper half of a word.
template <class Format>
void pack_codes(const std::uint8_t* codes, std::uint8_t* low) {
  std::uint32_t pairs[2] = {};   // of low bits
  std::uint32_t planes[2] = {};  // of high bits
  constexpr std::uint64_t low_mask = 0x0101010101010101ULL * ((1 << Format::low_bits) - 1);
  constexpr std::uint64_t high_mask = 0x0101010101010101ULL * ((1 << Format::high_bits) - 1);
  for (int pair = 0; pair < block_inputs / 8; ++pair) {
    std::uint64_t word;
    std::memcpy(&word, codes + pair * 8, sizeof word);
    const std::uint64_t bits = word & low_mask;
    if constexpr (Format::low_bits == 8) {
      store_word(low + 2 * pair * group_bytes, word);
      store_word(low + (2 * pair + 1) * group_bytes, word >> 32);
    } else if constexpr (Format::low_bits == 4) {
      store_word(low + pair * group_bytes, bits | bits >> 28);
    } else {
      pairs[pair / 2] |= static_cast<std::uint32_t>((bits | bits >> 30) << (pair % 2 * 4));
    }
    const std::uint64_t high = word >> Format::low_bits % 8 & high_mask;
    if constexpr (Format::high_bits == 1) {
      planes[0] |= static_cast<std::uint32_t>((high | high >> 31) << (2 * pair));
    } else if constexpr (Format::high_bits == 2) {
      planes[pair / 2] |= static_cast<std::uint32_t>((high | high >> 30) << (pair % 2 * 4));
    }
  }
  if constexpr (Format::low_bits == 2) {
    store_word(low, pairs[0]);
    store_word(low + group_bytes, pairs[1]);
  }
  for (int plane = 0; plane < Format::high_bits; ++plane) {
    store_word(low + low_bytes<Format> + plane * group_bytes, planes[plane]);
  }
}

/// Writes quantization block `index` of a row into its lane of the band.
template <class Format>
void pack_block(const BlockCodes& source, const HeaderLayout& layout, int index, int lane,
                std::uint8_t* band) {
  const std::ptrdiff_t stride =
      layout.bytes() + std::ptrdiff_t{layout.blocks} * block_bytes<Format>;
  std::uint8_t* header = band + index / layout.blocks * stride;
  std::uint8_t* block = header + layout.bytes() + index % layout.blocks * block_bytes<Format>;
  const int size = scale_bytes(layout.scale);
  std::memcpy(header + lane * size, source.scale, size);
  if (layout.minimum) {
    std::memcpy(header + (band_rows + lane) * size, source.minimum, size);
  }
  if constexpr (Format::sub_scales != SubScales::none) {
    block[lane] = source.sub_scales[0];
    block[band_rows + lane] = source.sub_scales[1];
  }
  pack_codes<Format>(source.codes, block + sub_scale_bytes<Format> + lane * 4);
}

/// Packs blocks (of 32 weights) first .. first + count of a row in GGUF's own layout into a lane of
/// a band.
using RowPacker = void (*)(const std::uint8_t* row, int first, int count, int lane,
                           std::uint8_t* band);

/// The packer of a GGUF type whose reader it holds; null for the others, which go through
/// `read_gguf_blocks`.
RowPacker gguf_row_packer(arrays::StorageType type);

}  // namespace espalier::kernels
