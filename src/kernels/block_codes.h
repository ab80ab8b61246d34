#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "arrays/tensor_file.h"
#include "kernels/band_format.h"

namespace espalier::kernels {

/// The format of a matrix and its headers, where the format leaves them open.
struct BandLayout {
  BandType type;
  HeaderLayout header = {};
};

/// The headers of a format that fixes them, else its most frequent ones.
HeaderLayout default_header(BandType type);

/// 32 consecutive weights of a row, whatever they came from: codes and the scales that
/// `QuantizedBand` describes.
struct BlockCodes {
  alignas(16) std::uint8_t codes[32];  // before the format's table; signed ones as they are
  std::uint8_t scale[4];               // of the header, as it lies there
  std::uint8_t minimum[4];             // to be added
  std::uint8_t sub_scales[2];          // see `SubScales`
};

/// Writes `count` blocks of a row from block `first` on, all bytes that the layout uses. Called by
/// several threads at once.
using BlockReader = std::function<void(int row, int first, int count, BlockCodes* codes)>;

/// What a GGUF type is packed as; nothing for plain types and those that are not known.
std::optional<BandLayout> gguf_layout(arrays::StorageType type);

/// Blocks (of 32 weights) from `first` on of a row in GGUF's own layout, of a type that has a
/// `gguf_layout`.
void read_gguf_blocks(arrays::StorageType type, const std::uint8_t* row, int first, int count,
                      BlockCodes* codes);

}  // namespace espalier::kernels
