#include <array>

#include "kernels/lanes_avx512.h"
#include "kernels/trellis_cpu.h"
#include "kernels/trellis_kernel.h"

namespace espalier::kernels {
namespace {

/// The bytes of lane l begin at (60 - 4 l) * bits / 8 of the 64 that a group is loaded as.
template <int bits>
constexpr std::array<std::uint8_t, 64> window_order() {
  std::array<std::uint8_t, 64> order{};
  for (int lane = 0; lane < 16; ++lane) {
    for (int byte = 0; byte < 4; ++byte) {
      order[4 * lane + byte] = static_cast<std::uint8_t>((60 - 4 * lane) * bits / 8 + byte);
    }
  }
  return order;
}

struct Avx512Trellis {
  using Lanes = Avx512Lanes;
  using Sum = __m512i;
  static constexpr int tile_rows = 6;

  template <int bits>
  static __m512i windows(const std::uint32_t* block, int group) {
    __m512i bytes = _mm512_loadu_si512(block + 2 * bits * (3 - group));
    if (group == 0) {
      // The window wraps to the block's first bytes.
      bytes = _mm512_mask_set1_epi32(bytes, 1U << (2 * bits), static_cast<int>(block[0]));
    }
    alignas(64) static constexpr auto order = window_order<bits>();
    return _mm512_permutexvar_epi8(_mm512_load_si512(order.data()), bytes);
  }
  template <int bits, int i>
  static __m512i states(__m512i window) {
    constexpr int shift = (3 - i) * bits;
    if constexpr (bits == 3) {
      // Even lanes begin in the middle of a byte.
      return _mm512_srlv_epi32(window, _mm512_set1_epi64(std::int64_t{shift} << 32 | (shift + 4)));
    } else {
      return _mm512_srli_epi32(window, shift);
    }
  }
  static __m512i byte_sums(__m512i hash) {
    return _mm512_dpbusd_epi32(_mm512_set1_epi32(-510), hash, _mm512_set1_epi8(1));
  }
  template <TrellisActivations activations>
  static std::int32_t integer(std::int32_t q) {
    const auto bits = static_cast<std::uint32_t>(q);
    return static_cast<std::int32_t>(activations == TrellisActivations::int15
                                         ? (bits & 0xFFFF) * 0x00010001U
                                         : (bits & 0xFF) * 0x01010101U);
  }
  template <TrellisActivations activations>
  static Sum dot(Sum sum, __m512i hash, __m512i q) {
    if constexpr (activations == TrellisActivations::int8) {
      return _mm512_dpbusd_epi32(sum, hash, q);
    } else {
      return _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(hash, _mm512_set1_epi8(1)), q);
    }
  }
  static std::int64_t total(Sum sum) {
    return _mm512_reduce_add_epi64(_mm512_add_epi64(wide_low(sum), wide_high(sum)));
  }
  static void add_totals(Sum sum, std::int64_t* totals) {
    _mm512_storeu_si512(totals, _mm512_add_epi64(_mm512_loadu_si512(totals), wide_low(sum)));
    _mm512_storeu_si512(totals + 8,
                        _mm512_add_epi64(_mm512_loadu_si512(totals + 8), wide_high(sum)));
  }
  static __m512i pair_dot(__m512i sum, __m512i y, __m512i x) {
    return _mm512_dpwssd_epi32(sum, y, x);
  }
  static void transpose(__m512i* rows) {
    __m512i pairs[16];
    for (int i = 0; i < 16; i += 2) {
      pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
      pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // fours[i + c]: column c of each 128-bit part, of rows i .. i + 3.
    __m512i fours[16];
    for (int i = 0; i < 16; i += 4) {
      for (int half = 0; half < 2; ++half) {
        fours[i + 2 * half] = _mm512_unpacklo_epi64(pairs[i + half], pairs[i + half + 2]);
        fours[i + 2 * half + 1] = _mm512_unpackhi_epi64(pairs[i + half], pairs[i + half + 2]);
      }
    }
    for (int column = 0; column < 4; ++column) {
      const __m512i top_even = _mm512_shuffle_i32x4(fours[column], fours[column + 4], 0x88);
      const __m512i top_odd = _mm512_shuffle_i32x4(fours[column], fours[column + 4], 0xDD);
      const __m512i low_even = _mm512_shuffle_i32x4(fours[column + 8], fours[column + 12], 0x88);
      const __m512i low_odd = _mm512_shuffle_i32x4(fours[column + 8], fours[column + 12], 0xDD);
      rows[column] = _mm512_shuffle_i32x4(top_even, low_even, 0x88);
      rows[column + 8] = _mm512_shuffle_i32x4(top_even, low_even, 0xDD);
      rows[column + 4] = _mm512_shuffle_i32x4(top_odd, low_odd, 0x88);
      rows[column + 12] = _mm512_shuffle_i32x4(top_odd, low_odd, 0xDD);
    }
  }
  static __m512 to_float(__m512i a, __m512i b) {
    const __m256 low =
        _mm512_cvtpd_ps(_mm512_add_pd(_mm512_cvtepi32_pd(_mm512_castsi512_si256(a)),
                                      _mm512_cvtepi32_pd(_mm512_castsi512_si256(b))));
    const __m256 high =
        _mm512_cvtpd_ps(_mm512_add_pd(_mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(a, 1)),
                                      _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(b, 1))));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
  }

 private:
  static __m512i wide_low(__m512i a) { return _mm512_cvtepi32_epi64(_mm512_castsi512_si256(a)); }
  static __m512i wide_high(__m512i a) {
    return _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(a, 1));
  }
};

}  // namespace

const TrellisCpu& trellis_cpu_avx512() {
  static constexpr TrellisCpu kernels = TrellisKernel<Avx512Trellis>::table();
  return kernels;
}

}  // namespace espalier::kernels
