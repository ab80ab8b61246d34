#pragma once

#include <cstdint>

#include <immintrin.h>

#include "kernels/element.h"

namespace espalier::kernels {

/// Eight lanes in AVX2, FMA and F16C; see `ScalarLanes` for the meaning of each operation.
struct Avx2Lanes {
  static constexpr int width = 8;
  using Float = __m256;
  using Int = __m256i;

  static Float zero() { return _mm256_setzero_ps(); }
  static Float set(float x) { return _mm256_set1_ps(x); }
  static Float load(const float* p) { return _mm256_loadu_ps(p); }
  static Float load(const Half* p) { return _mm256_cvtph_ps(load_128(p)); }
  static Float load(const Bfloat16* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16));
  }
  static void store(float* p, Float x) { _mm256_storeu_ps(p, x); }
  static void store(Half* p, Float x) {
    store_128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store(Bfloat16* p, Float x) {
    const Int bits = as_int(x);
    const Int odd = and_int(shift_right<16>(bits), set_int(1));
    const Int rounded = shift_right<16>(add_int(add_int(bits, set_int(0x7FFF)), odd));
    const Int quiet = or_int(shift_right<16>(bits), set_int(0x40));
    const Int is_nan = as_int(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const Int words = _mm256_blendv_epi8(rounded, quiet, is_nan);
    store_128(p,
              _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }

  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float div(Float a, Float b) { return _mm256_div_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float fnma(Float a, Float b, Float c) { return _mm256_fnmadd_ps(a, b, c); }
  static Float min(Float a, Float b) { return _mm256_min_ps(a, b); }
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static Float abs(Float a) { return _mm256_andnot_ps(set(-0.0F), a); }
  static Float select_greater(Float a, Float b, Float x, Float y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
  }

  static Int set_int(std::int32_t x) { return _mm256_set1_epi32(x); }
  static Int load_int(const std::int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void store_int(std::int32_t* p, Int x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
  }
  static Int load_int(const std::int8_t* p) { return _mm256_cvtepi8_epi32(load_64(p)); }
  static Int load_int(const std::uint8_t* p) { return _mm256_cvtepu8_epi32(load_64(p)); }
  static Int add_int(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int sub_int(Int a, Int b) { return _mm256_sub_epi32(a, b); }
  static Int mul_int(Int a, Int b) { return _mm256_mullo_epi32(a, b); }
  static Int and_int(Int a, Int b) { return _mm256_and_si256(a, b); }
  static Int or_int(Int a, Int b) { return _mm256_or_si256(a, b); }
  static Int or_masked(Int a, Int b, Int mask) { return or_int(a, and_int(b, mask)); }
  static Int xor_int(Int a, Int b) { return _mm256_xor_si256(a, b); }
  static Int max_int(Int a, Int b) { return _mm256_max_epi32(a, b); }
  template <int bits>
  static Int shift_left(Int a) {
    return _mm256_slli_epi32(a, bits);
  }
  template <int bits>
  static Int shift_right(Int a) {
    return _mm256_srli_epi32(a, bits);
  }
  template <int bits>
  static Int shift_right_signed(Int a) {
    return _mm256_srai_epi32(a, bits);
  }
  static Float to_float(Int a) { return _mm256_cvtepi32_ps(a); }
  static Int to_int(Float a) { return _mm256_cvtps_epi32(a); }
  static Float as_float(Int a) { return _mm256_castsi256_ps(a); }
  static Int as_int(Float a) { return _mm256_castps_si256(a); }
  static Int even_words(Int a) { return _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8); }
  static Int odd_words(Int a) { return _mm256_srai_epi16(a, 8); }
  static Int lookup_bytes(const std::int8_t* table, Int a) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_128(table)), a);
  }
  static Float lookup_floats(const float* table, Int a) {
    return _mm256_i32gather_ps(table, a, sizeof(float));
  }
  static void store_bytes(std::int8_t* p, Int a) {
    const Int low = _mm256_and_si256(a, _mm256_set1_epi32(0xFF));
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
  }

  static std::int32_t reduce_add(Int a) {
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(2, 3, 0, 1))));
  }
  static std::int32_t reduce_max(Int a) {
    __m128i max = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_max_epi32(max, _mm_shuffle_epi32(max, _MM_SHUFFLE(2, 3, 0, 1))));
  }

 private:
  static __m128i load_64(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  static __m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static void store_128(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
};

}  // namespace espalier::kernels
