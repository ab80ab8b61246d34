#include "quantization/mlx_encoders.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "quantization/small_floats.h"

namespace espalier::quantization {
namespace {

/// Rounds to the nearest integer, halves to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits
/// for a fraction.
float round_to_even(float x) {
  constexpr float shift = 12582912.0F;
  return (x + shift) - shift;
}

/// Packs `bits`-bit codes, the first in the lowest bits.
void pack_codes(std::span<const std::uint8_t> codes, int bits, std::byte* out) {
  std::uint64_t pending = 0;
  int count = 0;
  for (const std::uint8_t code : codes) {
    pending |= static_cast<std::uint64_t>(code) << count;
    for (count += bits; count >= 8; count -= 8) {
      *out++ = static_cast<std::byte>(pending & 0xFFU);
      pending >>= 8U;
    }
  }
}

void unpack_codes(const std::byte* in, int bits, std::span<std::uint8_t> codes) {
  const std::uint64_t mask = (1U << static_cast<unsigned>(bits)) - 1;
  std::uint64_t pending = 0;
  int count = 0;
  for (std::uint8_t& code : codes) {
    while (count < bits) {
      pending |= static_cast<std::uint64_t>(*in++) << count;
      count += 8;
    }
    code = static_cast<std::uint8_t>(pending & mask);
    pending >>= static_cast<unsigned>(bits);
    count -= bits;
  }
}

struct ScaleAndBias {
  float scale;
  float bias;
};

/// The end of the range that is larger in magnitude is hit exactly, and zero where it is between.
ScaleAndBias affine_scale(std::span<const float> group, float steps) {
  constexpr float smallest = 1e-7F;
  const auto [low, high] = std::ranges::minmax(group);
  const bool low_is_larger = std::abs(low) > std::abs(high);
  float scale = std::max((high - low) / steps, smallest);
  scale = low_is_larger ? scale : -scale;
  const float edge = low_is_larger ? low : high;
  const float edge_code = std::rint(edge / scale);
  if (edge_code == 0) return {scale, 0};
  return {edge / edge_code, edge};
}

float largest_magnitude(std::span<const float> group) {
  float largest = 0;
  for (const float value : group) largest = std::max(largest, std::abs(value));
  return largest;
}

/// The byte of the smallest power of two that is not below `x`; 127, which stands for one, for
/// zero.
std::uint8_t encode_power(float x) {
  constexpr int exponent_bias = 127;
  if (x == 0) return exponent_bias;
  const int exponent = static_cast<int>(std::ceil(std::log2(x)));
  return static_cast<std::uint8_t>(std::clamp(exponent + exponent_bias, 0, 254));
}

}  // namespace

MlxFormat mlx_float_format(MlxMode mode) {
  return {mode, mode == MlxMode::mxfp8 ? 8 : 4, mode == MlxMode::nvfp4 ? 16 : 32};
}

bool is_mlx_format(const MlxFormat& format) {
  if (format.mode != MlxMode::affine) return format == mlx_float_format(format.mode);
  constexpr std::array widths = {2, 3, 4, 5, 6, 8};
  constexpr std::array groups = {32, 64, 128};
  return std::ranges::find(widths, format.bits) != widths.end() &&
         std::ranges::find(groups, format.group) != groups.end();
}

void encode_affine(const MlxFormat& format, std::span<const float> values,
                   std::span<std::byte> codes, std::span<float> scales, std::span<float> biases) {
  const auto size = static_cast<std::size_t>(format.group);
  const float steps = static_cast<float>((1 << format.bits) - 1);
  const std::size_t group_bytes = size * static_cast<std::size_t>(format.bits) / 8;
  std::array<std::uint8_t, 128> group_codes;
  for (std::size_t g = 0; g < values.size() / size; ++g) {
    const auto group = values.subspan(g * size, size);
    const auto [scale, bias] = affine_scale(group, steps);
    for (std::size_t i = 0; i < size; ++i) {
      // Clamped before rounding, which comes to the same and keeps the argument small.
      const float code = round_to_even(std::clamp((group[i] - bias) / scale, 0.0F, steps));
      group_codes[i] = static_cast<std::uint8_t>(code);
    }
    pack_codes({group_codes.data(), size}, format.bits, codes.data() + g * group_bytes);
    scales[g] = scale;
    biases[g] = bias;
  }
}

void encode_float(const MlxFormat& format, std::span<const float> values,
                  std::span<std::byte> codes, std::span<std::byte> scales) {
  const auto size = static_cast<std::size_t>(format.group);
  const bool is_fp8 = format.mode == MlxMode::mxfp8;
  const float largest_code = is_fp8 ? 448.0F : 6.0F;
  const std::size_t group_bytes = size * static_cast<std::size_t>(format.bits) / 8;
  std::array<std::uint8_t, 32> group_codes;
  for (std::size_t g = 0; g < values.size() / size; ++g) {
    const auto group = values.subspan(g * size, size);
    const float wanted = largest_magnitude(group) / largest_code;
    const bool nv = format.mode == MlxMode::nvfp4;
    const std::uint8_t stored = nv ? encode_e4m3(wanted) : encode_power(wanted);
    const float scale = nv ? decode_e4m3(stored) : decode_e8m0(stored);
    for (std::size_t i = 0; i < size; ++i) {
      const float scaled = scale == 0 ? 0.0F : group[i] / scale;
      group_codes[i] = is_fp8 ? encode_e4m3(scaled) : encode_e2m1(scaled);
    }
    pack_codes({group_codes.data(), size}, format.bits, codes.data() + g * group_bytes);
    scales[g] = static_cast<std::byte>(stored);
  }
}

void decode_affine(const MlxFormat& format, std::span<const std::byte> codes,
                   std::span<const float> scales, std::span<const float> biases,
                   std::span<float> values) {
  const auto size = static_cast<std::size_t>(format.group);
  const std::size_t group_bytes = size * static_cast<std::size_t>(format.bits) / 8;
  std::array<std::uint8_t, 128> group_codes;
  for (std::size_t g = 0; g < values.size() / size; ++g) {
    unpack_codes(codes.data() + g * group_bytes, format.bits, {group_codes.data(), size});
    for (std::size_t i = 0; i < size; ++i) {
      values[g * size + i] = static_cast<float>(group_codes[i]) * scales[g] + biases[g];
    }
  }
}

void decode_float(const MlxFormat& format, std::span<const std::byte> codes,
                  std::span<const std::byte> scales, std::span<float> values) {
  const auto size = static_cast<std::size_t>(format.group);
  const std::size_t group_bytes = size * static_cast<std::size_t>(format.bits) / 8;
  std::array<std::uint8_t, 32> group_codes;
  for (std::size_t g = 0; g < values.size() / size; ++g) {
    unpack_codes(codes.data() + g * group_bytes, format.bits, {group_codes.data(), size});
    const auto stored = static_cast<std::uint8_t>(scales[g]);
    const float scale = format.mode == MlxMode::nvfp4 ? decode_e4m3(stored) : decode_e8m0(stored);
    for (std::size_t i = 0; i < size; ++i) {
      const float code =
          format.bits == 8 ? decode_e4m3(group_codes[i]) : decode_e2m1(group_codes[i]);
      values[g * size + i] = code * scale;
    }
  }
}

}  // namespace espalier::quantization
