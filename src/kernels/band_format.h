#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/element.h"

namespace espalier::kernels {

/// How packed matrices lie in memory. A band is 16 output rows; within it, the same input of every
/// row lies side by side, so one vector holds one input (or one group of 4 inputs as bytes) of 8 or
/// 16 output rows. All instruction sets read this one layout.
inline constexpr int band_rows = 16;
/// Inputs per quantization block of a band and per block of integer activations.
inline constexpr int block_inputs = 32;
/// Vectors of one group of inputs for all rows: 16 rows x 4 inputs x 1 byte.
inline constexpr int group_bytes = 64;

/// How scales and minima are stored in a band's headers; `none` stands for the scale 1.
enum class ScaleType : std::uint8_t {
  none,
  f16,
  bf16,
  f32,
  e8m0,      // 2^(byte - 127)
  half_e8m0  // 2^(byte - 128)
};

// Kernels of every instruction set call these: inlined always, so that none shares another's code.
[[gnu::always_inline]] constexpr int scale_bytes(ScaleType type) {
  switch (type) {
    case ScaleType::none:
      return 0;
    case ScaleType::f32:
      return 4;
    case ScaleType::e8m0:
    case ScaleType::half_e8m0:
      return 1;
    default:
      return 2;
  }
}

/// A header: scale[16] and, when there are minima, minimum[16]; then `blocks` quantization blocks
/// (the last header of a band may have fewer).
struct HeaderLayout {
  ScaleType scale = ScaleType::f16;
  bool minimum = false;
  int blocks = 1;

  [[gnu::always_inline]] constexpr int bytes() const {
    return band_rows * scale_bytes(scale) * (minimum ? 2 : 1);
  }
};

/// What the codes of a quantized band are.
enum class CodeKind : std::uint8_t {
  unsigned_integer,  // at most 127
  signed_integer,    // a byte
  e4m3,              // 8-bit floats
  e5m2,
  nf4  // 4-bit indices of the quantiles of a normal distribution
};

/// What refines a header's scale and minimum, in 2 bytes per row and quantization block.
enum class SubScales : std::uint8_t {
  none,
  per_block,          // i8 scale
  per_block_minimum,  // u8 scale, u8 minimum
  per_half,           // i8 scale per 16 inputs
  per_half_minimum,   // per 16 inputs 4 bits of scale and, above them, of minimum
  per_half_e4m3       // e4m3 scale per 16 inputs
};

/// A band of plain numbers: for each input the 16 rows' values of type `Element`.
template <class Element>
struct PlainBand {
  using element = Element;
  static constexpr bool quantized = false;
};

/// What all quantized bands have, with the most frequent values; a format overrides what differs.
///
/// value = factor * scale * (code - offset) + minimum, where `table` turns stored codes into codes
/// when there is one. After each header come its blocks: sub-scales ([16] first bytes, [16]
/// second), then codes. Codes of `low` bits: 2 bits 4 groups of 4 inputs in 64 bytes, the first in
/// the lowest bits; 4 bits 2 groups in 64 bytes; 8 bits 64 bytes a group. Then `high` more bits:
/// one bit plane of 64 bytes whose bit g belongs to group g, or two planes of which bits 2 (g mod
/// 4) belong to group g.
template <int low, int high>
struct QuantizedBand {
  static constexpr bool quantized = true;
  static constexpr int low_bits = low;
  static constexpr int high_bits = high;
  static constexpr CodeKind codes =
      low == 8 ? CodeKind::signed_integer : CodeKind::unsigned_integer;
  static constexpr int offset = 0;
  /// Largest code, after the table.
  static constexpr int largest = (1 << (low + high)) - 1;
  static constexpr std::nullptr_t table = nullptr;
  static constexpr float factor = 1.0F;
  static constexpr SubScales sub_scales = SubScales::none;
  static constexpr HeaderLayout header = {};
  /// Whether `header` holds for every matrix; else each matrix brings its own.
  static constexpr bool fixed_header = true;
};

template <class Format>
inline constexpr int sub_scale_bytes = Format::sub_scales == SubScales::none ? 0 : 2 * band_rows;
template <class Format>
inline constexpr int low_bytes = Format::low_bits * block_inputs * band_rows / 8;
template <class Format>
inline constexpr int block_bytes =
    sub_scale_bytes<Format> + low_bytes<Format> + Format::high_bits * block_inputs * band_rows / 8;
template <class Format>
inline constexpr bool integer_codes =
    Format::codes == CodeKind::unsigned_integer || Format::codes == CodeKind::signed_integer;

using BandF32 = PlainBand<float>;
using BandF16 = PlainBand<Half>;
using BandBf16 = PlainBand<Bfloat16>;

struct BandQ4_0 : QuantizedBand<4, 0> {
  static constexpr int offset = 8;
};
struct BandQ4_1 : QuantizedBand<4, 0> {
  static constexpr HeaderLayout header = {.minimum = true};
};
struct BandQ5_0 : QuantizedBand<4, 1> {
  static constexpr int offset = 16;
};
struct BandQ5_1 : QuantizedBand<4, 1> {
  static constexpr HeaderLayout header = {.minimum = true};
};
struct BandQ8_0 : QuantizedBand<8, 0> {};
/// Minima of the K-quants are stored negated, so that they are always added.
struct BandQ2K : QuantizedBand<2, 0> {
  static constexpr SubScales sub_scales = SubScales::per_half_minimum;
  static constexpr HeaderLayout header = {.minimum = true, .blocks = 8};
};
struct BandQ3K : QuantizedBand<2, 1> {
  static constexpr int offset = 4;
  static constexpr SubScales sub_scales = SubScales::per_half;
  static constexpr HeaderLayout header = {.blocks = 8};
};
struct BandQ4K : QuantizedBand<4, 0> {
  static constexpr SubScales sub_scales = SubScales::per_block_minimum;
  static constexpr HeaderLayout header = {.minimum = true, .blocks = 8};
};
struct BandQ5K : QuantizedBand<4, 1> {
  static constexpr SubScales sub_scales = SubScales::per_block_minimum;
  static constexpr HeaderLayout header = {.minimum = true, .blocks = 8};
};
struct BandQ6K : QuantizedBand<4, 2> {
  static constexpr int offset = 32;
  static constexpr SubScales sub_scales = SubScales::per_half;
  static constexpr HeaderLayout header = {.blocks = 8};
};
/// Signed bytes with scales of any type and group: q8_k, and safetensors in int8.
struct BandInt8 : QuantizedBand<8, 0> {
  static constexpr HeaderLayout header = {.scale = ScaleType::f32, .blocks = 8};
  static constexpr bool fixed_header = false;
};

/// Codes of 4 bits (or 3: the upper half of the table repeats the lower) that stand for the numbers
/// in a table. Numbers of a small range are stored `offset` higher, so that none is negative.
struct CodeTables {
  alignas(16) static constexpr std::int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};
  /// 0 0.5 1 1.5 2 3 4 6 and their negatives, doubled, + 12.
  alignas(16) static constexpr std::int8_t e2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                       12, 11, 10, 9,  8,  6,  4,  0};
  /// -1/8 0 1/8 ± ... : ternary digits with an eighth added or taken away, in eighths, + 9.
  alignas(16) static constexpr std::int8_t iq1[16] = {2, 10, 18, 0, 0, 8, 16, 0,
                                                      2, 10, 18, 0, 0, 8, 16, 0};
  /// 8 25 43 and their negatives, + 43.
  alignas(16) static constexpr std::int8_t iq2[16] = {51, 68, 86, 0, 35, 18, 0, 0,
                                                      51, 68, 86, 0, 35, 18, 0, 0};
  /// 4 12 20 28 36 44 52 62 and their negatives, + 62.
  alignas(16) static constexpr std::int8_t iq3_xxs[16] = {66, 74, 82, 90, 98, 106, 114, 124,
                                                          58, 50, 42, 34, 26, 18,  10,  0};
  /// 1 3 5 … 15 and their negatives, + 15.
  alignas(16) static constexpr std::int8_t iq3_s[16] = {16, 18, 20, 22, 24, 26, 28, 30,
                                                        14, 12, 10, 8,  6,  4,  2,  0};
};

struct BandIq4Nl : QuantizedBand<4, 0> {
  static constexpr CodeKind codes = CodeKind::signed_integer;
  static constexpr const std::int8_t* table = CodeTables::iq4;
};
struct BandIq4Xs : BandIq4Nl {
  static constexpr SubScales sub_scales = SubScales::per_block;
  static constexpr HeaderLayout header = {.blocks = 8};
};
/// iq1_s and iq1_m: 2 bits of ternary digit, 1 bit for the direction of its shift.
struct BandIq1 : QuantizedBand<2, 1> {
  static constexpr int offset = 9;
  static constexpr int largest = 18;
  static constexpr const std::int8_t* table = CodeTables::iq1;
  static constexpr float factor = 0.125F;
  static constexpr SubScales sub_scales = SubScales::per_half;
  static constexpr HeaderLayout header = {.blocks = 8};
};
/// iq2_xxs, iq2_xs and iq2_s: 2 bits of level, 1 bit of sign.
struct BandIq2 : QuantizedBand<2, 1> {
  static constexpr int offset = 43;
  static constexpr int largest = 86;
  static constexpr const std::int8_t* table = CodeTables::iq2;
  static constexpr float factor = 0.125F;
  static constexpr SubScales sub_scales = SubScales::per_half;
  static constexpr HeaderLayout header = {.blocks = 8};
};
/// 3 bits of level, 1 bit of sign, as in `BandIq3S`.
struct BandIq3Xxs : QuantizedBand<4, 0> {
  static constexpr int offset = 62;
  static constexpr int largest = 124;
  static constexpr const std::int8_t* table = CodeTables::iq3_xxs;
  static constexpr float factor = 0.25F;
  static constexpr SubScales sub_scales = SubScales::per_block;
  static constexpr HeaderLayout header = {.blocks = 8};
};
struct BandIq3S : QuantizedBand<4, 0> {
  static constexpr int offset = 15;
  static constexpr int largest = 30;
  static constexpr const std::int8_t* table = CodeTables::iq3_s;
  static constexpr SubScales sub_scales = SubScales::per_block;
  static constexpr HeaderLayout header = {.blocks = 8};
};
/// tq1_0 and tq2_0.
struct BandTernary : QuantizedBand<2, 0> {
  static constexpr int offset = 1;
  static constexpr int largest = 2;
  static constexpr HeaderLayout header = {.blocks = 8};
};
struct BandMxfp4 : QuantizedBand<4, 0> {
  static constexpr int offset = 12;
  static constexpr int largest = 24;
  static constexpr const std::int8_t* table = CodeTables::e2m1;
  static constexpr HeaderLayout header = {.scale = ScaleType::half_e8m0};
};
/// The header, if any, is one more scale for a whole row.
struct BandNvfp4 : BandMxfp4 {
  static constexpr float factor = 0.5F;
  static constexpr HeaderLayout header = {.scale = ScaleType::none};
  static constexpr SubScales sub_scales = SubScales::per_half_e4m3;
  static constexpr bool fixed_header = false;
};

/// Codes of any width, with scales and minima of any type for groups of any multiple of 32 inputs.
template <int low, int high>
struct BandAffine : QuantizedBand<low, high> {
  /// 8 bits are stored 128 lower, as signed bytes.
  static constexpr int offset = low == 8 ? -128 : 0;
  static constexpr HeaderLayout header = {.minimum = true};
  static constexpr bool fixed_header = false;
};
using BandAffine2 = BandAffine<2, 0>;
using BandAffine3 = BandAffine<2, 1>;
using BandAffine4 = BandAffine<4, 0>;
using BandAffine5 = BandAffine<4, 1>;
using BandAffine6 = BandAffine<4, 2>;
using BandAffine8 = BandAffine<8, 0>;

/// Quantiles of the normal distribution, as the NF4 format of bitsandbytes (MIT) has them.
alignas(64) inline constexpr float nf4_values[16] = {-1.0F,
                                                     -0.6961928009986877F,
                                                     -0.5250730514526367F,
                                                     -0.39491748809814453F,
                                                     -0.28444138169288635F,
                                                     -0.18477343022823334F,
                                                     -0.09105003625154495F,
                                                     0.0F,
                                                     0.07958029955625534F,
                                                     0.16093020141124725F,
                                                     0.24611230194568634F,
                                                     0.33791524171829224F,
                                                     0.44070982933044434F,
                                                     0.5626170039176941F,
                                                     0.7229568362236023F,
                                                     1.0F};

/// Codes that are floats, which integer products cannot take.
template <CodeKind kind, int bits>
struct BandFloat : QuantizedBand<bits, 0> {
  static constexpr CodeKind codes = kind;
  static constexpr bool fixed_header = false;
};
using BandE4m3 = BandFloat<CodeKind::e4m3, 8>;
using BandE5m2 = BandFloat<CodeKind::e5m2, 8>;
using BandNf4 = BandFloat<CodeKind::nf4, 4>;

template <class... Formats>
struct FormatList {
  static constexpr int size = sizeof...(Formats);
};
/// All formats, in the order of `BandType`. Each list is compiled by itself.
using CommonFormats = FormatList<BandF32, BandF16, BandBf16, BandQ4_0, BandQ4_1, BandQ5_0, BandQ5_1,
                                 BandQ8_0, BandQ4K, BandQ5K, BandQ6K>;
using SmallFormats = FormatList<BandQ2K, BandQ3K, BandInt8, BandIq1, BandIq2, BandIq3Xxs, BandIq3S,
                                BandIq4Nl, BandIq4Xs, BandTernary, BandMxfp4, BandNvfp4>;
using GroupedFormats = FormatList<BandAffine2, BandAffine3, BandAffine4, BandAffine5, BandAffine6,
                                  BandAffine8, BandE4m3, BandE5m2, BandNf4>;

template <class Format>
inline constexpr bool is_common = []<class... Formats>(FormatList<Formats...>) {
  return (std::is_same_v<Format, Formats> || ...);
}(CommonFormats());

/// The formats that a matrix can be packed in.
enum class BandType : std::uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
  q2_k,
  q3_k,
  int8,
  iq1,
  iq2,
  iq3_xxs,
  iq3_s,
  iq4_nl,
  iq4_xs,
  ternary,
  mxfp4,
  nvfp4,
  affine2,
  affine3,
  affine4,
  affine5,
  affine6,
  affine8,
  e4m3,
  e5m2,
  nf4
};
inline constexpr int band_types = CommonFormats::size + SmallFormats::size + GroupedFormats::size;
static_assert(band_types == static_cast<int>(BandType::nf4) + 1);

/// Bytes of one band of K inputs.
template <class Format>
std::int64_t band_bytes(std::int64_t columns, const HeaderLayout& layout) {
  if constexpr (Format::quantized) {
    const std::int64_t blocks = columns / block_inputs;
    const std::int64_t headers = (blocks + layout.blocks - 1) / layout.blocks;
    return headers * layout.bytes() + blocks * block_bytes<Format>;
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

/// The same in 15 bits and a sign. Of each 4 values the inner two have changed places, as the
/// weights' codes widened to 16 bits lie.
struct WideActivationBlock {
  std::int16_t values[block_inputs];
  float scale;  // largest magnitude / 32512
  float scaled_sum;
  std::int32_t sum;
  std::int32_t half_sums[2];
};

}  // namespace espalier::kernels
