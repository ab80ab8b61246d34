#pragma once

#include <cstdint>

#include <immintrin.h>

#include "kernels/element.h"

namespace espalier::kernels {

/// Sixteen lanes in AVX-512 F, BW, VL, DQ and VNNI; see `ScalarLanes` for the meaning of each
/// operation.
struct Avx512Lanes {
  static constexpr int width = 16;
  using Float = __m512;
  using Int = __m512i;

  static Float zero() { return _mm512_setzero_ps(); }
  static Float set(float x) { return _mm512_set1_ps(x); }
  static Float load(const float* p) { return _mm512_loadu_ps(p); }
  static Float load(const Half* p) { return _mm512_cvtph_ps(load_256(p)); }
  static Float load(const Bfloat16* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_256(p)), 16));
  }
  static void store(float* p, Float x) { _mm512_storeu_ps(p, x); }
  static void store(Half* p, Float x) {
    store_256(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store(Bfloat16* p, Float x) {
    const Int bits = as_int(x);
    const Int odd = and_int(shift_right<16>(bits), set_int(1));
    const Int rounded = shift_right<16>(add_int(add_int(bits, set_int(0x7FFF)), odd));
    const Int quiet = or_int(shift_right<16>(bits), set_int(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    store_256(p, _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(is_nan, rounded, quiet)));
  }

  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float div(Float a, Float b) { return _mm512_div_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float fnma(Float a, Float b, Float c) { return _mm512_fnmadd_ps(a, b, c); }
  static Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float abs(Float a) { return _mm512_abs_ps(a); }
  static Float select_greater(Float a, Float b, Float x, Float y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
  }

  static Int set_int(std::int32_t x) { return _mm512_set1_epi32(x); }
  static Int load_int(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  static void store_int(std::int32_t* p, Int x) { _mm512_storeu_si512(p, x); }
  static Int load_int(const std::int8_t* p) { return _mm512_cvtepi8_epi32(load_128(p)); }
  static Int load_int(const std::uint8_t* p) { return _mm512_cvtepu8_epi32(load_128(p)); }
  static Int add_int(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int sub_int(Int a, Int b) { return _mm512_sub_epi32(a, b); }
  static Int mul_int(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
  static Int and_int(Int a, Int b) { return _mm512_and_si512(a, b); }
  static Int or_int(Int a, Int b) { return _mm512_or_si512(a, b); }
  static Int or_masked(Int a, Int b, Int mask) {
    constexpr int a_or_b_and_mask = 0xF8;
    return _mm512_ternarylogic_epi32(a, b, mask, a_or_b_and_mask);
  }
  static Int xor_int(Int a, Int b) { return _mm512_xor_si512(a, b); }
  static Int max_int(Int a, Int b) { return _mm512_max_epi32(a, b); }
  template <int bits>
  static Int shift_left(Int a) {
    return _mm512_slli_epi32(a, bits);
  }
  template <int bits>
  static Int shift_right(Int a) {
    return _mm512_srli_epi32(a, bits);
  }
  template <int bits>
  static Int shift_right_signed(Int a) {
    return _mm512_srai_epi32(a, bits);
  }
  static Float to_float(Int a) { return _mm512_cvtepi32_ps(a); }
  static Int to_int(Float a) { return _mm512_cvtps_epi32(a); }
  static Float as_float(Int a) { return _mm512_castsi512_ps(a); }
  static Int as_int(Float a) { return _mm512_castps_si512(a); }
  static Int even_words(Int a) { return _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8); }
  static Int odd_words(Int a) { return _mm512_srai_epi16(a, 8); }
  static Int lookup_bytes(const std::int8_t* table, Int a) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_128(table)), a);
  }
  static Float lookup_floats(const float* table, Int a) {
    return _mm512_permutexvar_ps(a, _mm512_loadu_ps(table));
  }
  static void store_bytes(std::int8_t* p, Int a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
  }

  static std::int32_t reduce_add(Int a) { return _mm512_reduce_add_epi32(a); }
  static std::int32_t reduce_max(Int a) { return _mm512_reduce_max_epi32(a); }

 private:
  static __m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static __m256i load_256(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static void store_256(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
};

}  // namespace espalier::kernels
