#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/element.h"

namespace espalier::kernels {

/// Vector operations on one lane, in plain C++: the meaning of the operations of `Avx2Lanes` and
/// `Avx512Lanes`, which give the same bits lane by lane. Kernels are templates over these types, so
/// that no two instruction sets ever share an instantiation: a source file compiled for one
/// instruction set includes the lanes of that one only.
struct ScalarLanes {
  static constexpr int width = 1;
  using Float = float;
  using Int = std::int32_t;

  static Float zero() { return 0.0F; }
  static Float set(float x) { return x; }
  static Float load(const float* p) { return *p; }
  static Float load(const Half* p) {
    _Float16 half;
    std::memcpy(&half, p, sizeof half);
    return static_cast<float>(half);
  }
  static Float load(const Bfloat16* p) {
    return to_bits_float(static_cast<std::uint32_t>(p->bits) << 16);
  }
  static void store(float* p, Float x) { *p = x; }
  static void store(Half* p, Float x) {
    const auto half = static_cast<_Float16>(x);
    std::memcpy(p, &half, sizeof half);
  }
  /// Rounds to nearest even; a NaN stays one.
  static void store(Bfloat16* p, Float x) {
    const std::uint32_t bits = to_bits(x);
    const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    p->bits = static_cast<std::uint16_t>(x == x ? rounded : (bits >> 16) | 0x40);
  }

  static Float add(Float a, Float b) { return a + b; }
  static Float sub(Float a, Float b) { return a - b; }
  static Float mul(Float a, Float b) { return a * b; }
  static Float div(Float a, Float b) { return a / b; }
  /// a * b + c, rounded once.
  static Float fma(Float a, Float b, Float c) { return __builtin_fmaf(a, b, c); }
  /// c - a * b, rounded once.
  static Float fnma(Float a, Float b, Float c) { return __builtin_fmaf(-a, b, c); }
  /// b when either is a NaN.
  static Float min(Float a, Float b) { return a < b ? a : b; }
  static Float max(Float a, Float b) { return a > b ? a : b; }
  static Float abs(Float a) { return to_bits_float(to_bits(a) & 0x7FFFFFFF); }
  /// a > b ? x : y
  static Float select_greater(Float a, Float b, Float x, Float y) { return a > b ? x : y; }

  static Int set_int(std::int32_t x) { return x; }
  static Int load_int(const std::int32_t* p) {  // of bytes that no int32 was stored in, too
    Int x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static void store_int(std::int32_t* p, Int x) { *p = x; }
  /// Sign- and zero-extended bytes.
  static Int load_int(const std::int8_t* p) { return *p; }
  static Int load_int(const std::uint8_t* p) { return *p; }
  static Int add_int(Int a, Int b) { return wrap(to_unsigned(a) + to_unsigned(b)); }
  static Int sub_int(Int a, Int b) { return wrap(to_unsigned(a) - to_unsigned(b)); }
  static Int mul_int(Int a, Int b) { return wrap(to_unsigned(a) * to_unsigned(b)); }
  static Int and_int(Int a, Int b) { return a & b; }
  static Int or_int(Int a, Int b) { return a | b; }
  /// a | (b & mask)
  static Int or_masked(Int a, Int b, Int mask) { return a | (b & mask); }
  static Int xor_int(Int a, Int b) { return a ^ b; }
  static Int max_int(Int a, Int b) { return a > b ? a : b; }
  template <int bits>
  static Int shift_left(Int a) {
    return wrap(to_unsigned(a) << bits);
  }
  template <int bits>
  static Int shift_right(Int a) {  // logical
    return wrap(to_unsigned(a) >> bits);
  }
  template <int bits>
  static Int shift_right_signed(Int a) {
    return a >> bits;
  }
  static Float to_float(Int a) { return static_cast<float>(a); }
  /// Of whole numbers within the range of int32 only.
  static Int to_int(Float a) { return static_cast<Int>(a); }
  static Float as_float(Int a) { return to_bits_float(to_unsigned(a)); }
  static Int as_int(Float a) { return wrap(to_bits(a)); }
  /// Bytes 0 and 2 of each lane, or 1 and 3, widened to words with their sign.
  static Int even_words(Int a) {
    return wrap(static_cast<std::uint16_t>(static_cast<std::int8_t>(a)) |
                to_unsigned(static_cast<std::int8_t>(a >> 16)) << 16);
  }
  static Int odd_words(Int a) { return even_words(a >> 8); }
  /// Each byte, which is below 16, by what `table` has in its place.
  static Int lookup_bytes(const std::int8_t* table, Int a) {
    std::uint32_t result = 0;
    for (int shift = 0; shift < 32; shift += 8) {
      const auto value = static_cast<std::uint8_t>(table[a >> shift & 15]);
      result |= static_cast<std::uint32_t>(value) << shift;
    }
    return wrap(result);
  }
  /// Each lane, which is below 16, by what `table` has in its place.
  static Float lookup_floats(const float* table, Int a) { return table[a]; }
  /// Stores the low byte of each lane.
  static void store_bytes(std::int8_t* p, Int a) { *p = static_cast<std::int8_t>(a); }

  static std::int32_t reduce_add(Int a) { return a; }
  static std::int32_t reduce_max(Int a) { return a; }

 private:
  static std::uint32_t to_unsigned(Int a) { return static_cast<std::uint32_t>(a); }
  static Int wrap(std::uint32_t a) { return static_cast<Int>(a); }
  static std::uint32_t to_bits(float a) {
    std::uint32_t bits;
    std::memcpy(&bits, &a, sizeof bits);
    return bits;
  }
  static float to_bits_float(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
};

}  // namespace espalier::kernels
