#pragma once

#include <cstdint>

#include "arrays/tensor_file.h"

namespace espalier::kernels {

/// 32 consecutive weights of a GGUF tensor, whatever its type: integer codes and the scales that
/// `QuantizedBand` describes.
struct BlockCodes {
  alignas(16) std::uint8_t codes[32];  // below 64, or signed bytes (q8_0)
  std::uint16_t scale;                 // f16 bits
  std::uint16_t minimum;               // f16 bits, to be added: the K-quants' negated
  std::uint8_t sub_scales[2];          // u8 scale and minimum (q4_k, q5_k), i8 per 16 inputs (q6_k)
};

/// Blocks (of 32 weights) from `first` on of a row in GGUF's own layout. The type must be quantized
/// and one that `pack` takes.
void read_blocks(arrays::StorageType type, const std::uint8_t* row, int first, int count,
                 BlockCodes* codes);

}  // namespace espalier::kernels
