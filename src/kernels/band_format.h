#pragma once

#include <cstdint>

#include "kernels/element.h"

namespace espalier::kernels {

/// How packed matrices lie in memory. A band is 16 output rows; within it, the same input of every
/// row lies side by side, so one vector holds one input (or one group of 4 inputs as bytes) of 8 or
/// 16 output rows. All instruction sets read this one layout.
inline constexpr int band_rows = 16;
/// Inputs per quantization block and per block of int8 activations.
inline constexpr int block_inputs = 32;
/// Vectors of one group of inputs for all rows: 16 rows x 4 inputs x 1 byte.
inline constexpr int group_bytes = 64;

/// A band of plain numbers: for each input the 16 rows' values of type `Element`.
template <class Element>
struct PlainBand {
  using element = Element;
  static constexpr bool quantized = false;
};

/// Where the scale of a quantization block comes from.
enum class SubScales {
  none,       // the header's f16 scale (and minimum) is the block's own
  per_block,  // u8 scale and u8 minimum per block of 32, times the header's (q4_k, q5_k)
  per_half    // i8 scale per 16 inputs, times the header's (q6_k)
};

/// A band of quantized numbers: value = scale * (code - offset), or scale * code + minimum.
///
/// For every `blocks` quantization blocks: a header of f16 scale[16] and, when `has_minimum`, f16
/// minimum[16] (negated for the K-quants, so that it is always added); then per block the
/// sub-scales
/// ([16] scales, then [16] minima or second-half scales) and the codes. Codes of 4 bits: for each
/// pair of groups of 4 inputs 64 bytes, the even group in the low and the odd one in the high
/// nibbles; then `high` more bits: one bit plane of 64 bytes whose bit g belongs to group g, or two
/// planes of which bits 2 (g mod 4) belong to group g. Codes of 8 bits: 64 signed bytes per group.
template <int low, int high, bool minimum, int code_offset, int blocks, SubScales sub>
struct QuantizedBand {
  static constexpr bool quantized = true;
  static constexpr int low_bits = low;
  static constexpr int high_bits = high;
  static constexpr bool has_minimum = minimum;
  static constexpr int offset = code_offset;
  static constexpr int blocks_per_header = blocks;
  static constexpr SubScales sub_scales = sub;

  static constexpr int header_bytes = 2 * band_rows * (minimum ? 2 : 1);
  static constexpr int sub_scale_bytes = sub == SubScales::none ? 0 : 2 * band_rows;
  static constexpr int low_bytes = low * block_inputs * band_rows / 8;
  static constexpr int high_bytes = high * block_inputs * band_rows / 8;
  static constexpr int block_bytes = sub_scale_bytes + low_bytes + high_bytes;
  static constexpr int stride = header_bytes + blocks * block_bytes;
};

using BandF32 = PlainBand<float>;
using BandF16 = PlainBand<Half>;
using BandBf16 = PlainBand<Bfloat16>;
using BandQ4_0 = QuantizedBand<4, 0, false, 8, 1, SubScales::none>;
using BandQ4_1 = QuantizedBand<4, 0, true, 0, 1, SubScales::none>;
using BandQ5_0 = QuantizedBand<4, 1, false, 16, 1, SubScales::none>;
using BandQ5_1 = QuantizedBand<4, 1, true, 0, 1, SubScales::none>;
using BandQ8_0 = QuantizedBand<8, 0, false, 0, 1, SubScales::none>;
using BandQ4K = QuantizedBand<4, 0, true, 0, 8, SubScales::per_block>;
using BandQ5K = QuantizedBand<4, 1, true, 0, 8, SubScales::per_block>;
using BandQ6K = QuantizedBand<4, 2, false, 32, 8, SubScales::per_half>;

/// Bytes of one band of K inputs.
template <class Format>
constexpr std::int64_t band_bytes(std::int64_t columns) {
  if constexpr (Format::quantized) {
    return columns / block_inputs / Format::blocks_per_header * Format::stride;
  } else {
    return columns * band_rows * static_cast<std::int64_t>(sizeof(typename Format::element));
  }
}

/// One block of a row of activations: x = scale * values, with the sums that offsets and minima of
/// weights need.
struct ActivationBlock {
  std::int8_t values[block_inputs];
  float scale;                // largest magnitude / 127
  float scaled_sum;           // scale * sum, rounded once
  std::int32_t sum;           // of values
  std::int16_t half_sums[2];  // of the first and the last 16 values
};

}  // namespace espalier::kernels
