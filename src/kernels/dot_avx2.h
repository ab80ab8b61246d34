#pragma once

#include <immintrin.h>

namespace espalier::kernels {

/// Integer dot products of `linear_kernel.h` in AVX2.
struct Avx2Dot {
  static constexpr int tile_lanes = 16;
  static constexpr int tile_rows = 4;
  static constexpr int signed_offset = 0;
  static constexpr bool keeps_halves = false;

  class Sum {
   public:
    void add(__m256i codes, __m256i x) {
      pairs_ = _mm256_add_epi16(pairs_, _mm256_maddubs_epi16(codes, x));
      // Keeps GCC from turning the chain of additions into a tree, whose leaves it would spill.
      asm("" : "+x"(pairs_));
    }
    /// Signed bytes times signed bytes as magnitudes times bytes that took over the sign: at most
    /// 2 x 128 x 127, so one addition fits 16 bits.
    void add_signed(__m256i values, __m256i x) {
      const __m256i pairs =
          _mm256_maddubs_epi16(_mm256_abs_epi8(values), _mm256_sign_epi8(x, values));
      total_ = _mm256_add_epi32(total_, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    void fold() {
      total_ = _mm256_add_epi32(total_, _mm256_madd_epi16(pairs_, _mm256_set1_epi16(1)));
      pairs_ = _mm256_setzero_si256();
    }
    void fold_scaled(__m256i scale) {
      const __m256i twice = _mm256_blend_epi16(scale, _mm256_slli_epi32(scale, 16), 0xAA);
      total_ = _mm256_add_epi32(total_, _mm256_madd_epi16(pairs_, twice));
      pairs_ = _mm256_setzero_si256();
    }
    __m256i total() const { return total_; }

   private:
    __m256i pairs_ = _mm256_setzero_si256();
    __m256i total_ = _mm256_setzero_si256();
  };

  class WideSum {
   public:
    void add(__m256i codes, __m256i x) {
      sum_ = _mm256_add_epi32(sum_, _mm256_madd_epi16(codes, x));
    }
    __m256i total() const { return sum_; }

   private:
    __m256i sum_ = _mm256_setzero_si256();
  };
};

}  // namespace espalier::kernels
