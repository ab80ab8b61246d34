#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace espalier::quantization {

// Numbers of 16 bits and fewer. The encoders round to the nearest value.

/// Halves to even; beyond the largest, infinity.
inline std::uint16_t encode_f16(float value) {
  const auto half = static_cast<_Float16>(value);
  std::uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

/// Halves to even; not-a-numbers stay such.
inline std::uint16_t encode_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}

/// Two to the power `exponent - 127`; 255 is not a number (OCP MX).
inline float decode_e8m0(std::uint8_t exponent) {
  if (exponent == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0F, exponent - 127);
}

/// 1 sign, 4 exponent and 3 mantissa bits without infinities; 0x7F and 0xFF are not numbers.
inline float decode_e4m3(std::uint8_t bits) {
  const int exponent = bits >> 3 & 0xF;
  const int mantissa = bits & 0x7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

/// Halves to even; beyond the largest, 448.
inline std::uint8_t encode_e4m3(float value) {
  constexpr float largest = 448.0F;
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::fmin(std::abs(value), largest);
  // The spacing of the values around `magnitude` is two to the power `exponent - 3`.
  const int exponent = magnitude < 0x1p-6F ? -6 : std::ilogb(magnitude);
  const auto steps = static_cast<int>(std::rint(std::ldexp(magnitude, 3 - exponent)));
  // 16 steps are the next exponent's 8, which this sum carries over.
  const int code = (exponent + 6) * 8 + steps;
  return static_cast<std::uint8_t>(sign | code);
}

constexpr std::array<float, 8> e2m1_values = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

/// 1 sign, 2 exponent bits and 1 mantissa bit.
inline float decode_e2m1(std::uint8_t code) {
  const float magnitude = e2m1_values[code & 0x7U];
  return (code & 0x8U) != 0 ? -magnitude : magnitude;
}

/// Halves to the smaller magnitude; beyond the largest, 6. Zero has no sign.
inline std::uint8_t encode_e2m1(float value) {
  constexpr std::array<float, 7> bounds = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  const float magnitude = std::abs(value);
  std::uint8_t code = 0;
  for (const float bound : bounds) code += magnitude > bound ? 1 : 0;
  return static_cast<std::uint8_t>(code != 0 && value < 0 ? code | 0x8U : code);
}

}  // namespace espalier::quantization
