#pragma once

#include <immintrin.h>

namespace espalier::kernels {

/// Integer dot products of `linear_kernel.h` in AVX-512 VNNI.
struct Avx512Dot {
  static constexpr int tile_lanes = 16;
  static constexpr int tile_rows = 8;
  static constexpr int signed_offset = 128;
  static constexpr bool keeps_halves = true;  // VPMULLD takes as long as 3 other instructions

  class Sum {
   public:
    void add(__m512i codes, __m512i x) { sum_ = _mm512_dpbusd_epi32(sum_, codes, x); }
    void add_signed(__m512i values, __m512i x) {
      add(_mm512_xor_si512(values, _mm512_set1_epi8(-128)), x);
    }
    void fold() {}
    void end_half() {
      first_ = sum_;
      sum_ = _mm512_setzero_si512();
    }
    __m512i first_half() const { return first_; }
    __m512i total() const { return sum_; }

   private:
    __m512i sum_ = _mm512_setzero_si512();
    __m512i first_ = _mm512_setzero_si512();
  };

  class WideSum {
   public:
    void add(__m512i codes, __m512i x) { sum_ = _mm512_dpwssd_epi32(sum_, codes, x); }
    __m512i total() const { return sum_; }

   private:
    __m512i sum_ = _mm512_setzero_si512();
  };
};

}  // namespace espalier::kernels
