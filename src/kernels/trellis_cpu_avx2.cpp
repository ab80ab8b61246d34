#include "kernels/lanes_avx2.h"
#include "kernels/trellis_cpu.h"
#include "kernels/trellis_kernel.h"

namespace espalier::kernels {
namespace {

struct Avx2Trellis {
  using Lanes = Avx2Lanes;
  using Sum = __m256i;
  static constexpr int tile_rows = 3;
  static constexpr int outputs_together = 1;

  template <int bits>
  static void states(const TrellisOperand& operand, const std::uint32_t* block, int group,
                     __m256i* states) {
    const __m256i window = windows<bits>(block, group);
    const __m256i mask = _mm256_set1_epi32(operand.mask);
    states[0] = _mm256_and_si256(shift<bits, 0>(window), mask);
    states[1] = _mm256_and_si256(shift<bits, 1>(window), mask);
    states[2] = _mm256_and_si256(shift<bits, 2>(window), mask);
    states[3] = _mm256_and_si256(shift<bits, 3>(window), mask);
  }
  static __m256i pair_sums(__m256i hash) { return _mm256_maddubs_epi16(hash, _mm256_set1_epi8(1)); }
  static __m256i byte_sums(__m256i hash) {
    return _mm256_add_epi32(_mm256_madd_epi16(pair_sums(hash), _mm256_set1_epi16(1)),
                            _mm256_set1_epi32(-510));
  }
  template <TrellisActivations>
  static std::int32_t integer(std::int32_t q) {
    return static_cast<std::int32_t>((static_cast<std::uint32_t>(q) & 0xFFFF) * 0x00010001U);
  }
  template <TrellisActivations>
  static Sum dot(Sum sum, __m256i hash, __m256i q) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pair_sums(hash), q));
  }
  template <TrellisActivations>
  static void exact_sums(const Sum* sums, std::int64_t centre, float* exact) {
    const __m256i low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(*sums));
    const __m256i high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(*sums, 1));
    alignas(32) std::int64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi64(low, high));
    *exact = static_cast<float>(lanes[0] + lanes[1] + lanes[2] + lanes[3] - centre);
  }
  static __m256i pair_dot(__m256i sum, __m256i y, __m256i x) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(y, x));
  }
  static void transpose(__m256i* rows) {
    __m256i pairs[8];
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    __m256i fours[8];
    for (int i = 0; i < 8; i += 4) {
      for (int half = 0; half < 2; ++half) {
        fours[i + 2 * half] = _mm256_unpacklo_epi64(pairs[i + half], pairs[i + half + 2]);
        fours[i + 2 * half + 1] = _mm256_unpackhi_epi64(pairs[i + half], pairs[i + half + 2]);
      }
    }
    for (int i = 0; i < 4; ++i) {
      rows[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
      rows[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
    }
  }
  static __m256 to_float(__m256i a, __m256i b) {
    const __m128 low =
        _mm256_cvtpd_ps(_mm256_add_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(a)),
                                      _mm256_cvtepi32_pd(_mm256_castsi256_si128(b))));
    const __m128 high =
        _mm256_cvtpd_ps(_mm256_add_pd(_mm256_cvtepi32_pd(_mm256_extracti128_si256(a, 1)),
                                      _mm256_cvtepi32_pd(_mm256_extracti128_si256(b, 1))));
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
  }

 private:
  /// Lane l: 32 bits that hold the states of the group's weights 4 l .. 4 l + 3. Each half of four
  /// lanes takes its bytes from its own 16 of the block: the last lane's from byte 0 on.
  template <int bits>
  static __m256i windows(const std::uint32_t* block, int group) {
    const auto* bytes = reinterpret_cast<const char*>(block) + (30 - 4 * group) * bits;
    __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
    if (group == 0) {
      // The window wraps to the block's first bytes.
      constexpr std::int64_t kept = bits == 4 ? -1 : (std::int64_t{1} << 16 * (bits % 4)) - 1;
      const __m128i wrapped =
          _mm_slli_si128(_mm_cvtsi32_si128(static_cast<int>(block[0])), 2 * bits);
      first = _mm_or_si128(_mm_and_si128(first, _mm_set_epi64x(0, kept)), wrapped);
    }
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes - 2 * bits));
    // The bytes of lane l of a half begin at (12 - 4 l) * bits / 8.
    constexpr int b0 = 12 * bits / 8;
    constexpr int b1 = 8 * bits / 8;
    constexpr int b2 = 4 * bits / 8;
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(b0, b0 + 1, b0 + 2, b0 + 3, b1, b1 + 1, b1 + 2,
                                                  b1 + 3, b2, b2 + 1, b2 + 2, b2 + 3, 0, 1, 2, 3));
    return _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1),
                               order);
  }
  /// The state of weight 4 l + i in the low bits of lane l, others above.
  template <int bits, int i>
  static __m256i shift(__m256i window) {
    constexpr int shift = (3 - i) * bits;
    if constexpr (bits == 3) {
      // Even lanes begin in the middle of a byte.
      return _mm256_srlv_epi32(window, _mm256_set1_epi64x(std::int64_t{shift} << 32 | (shift + 4)));
    } else {
      return _mm256_srli_epi32(window, shift);
    }
  }
};

}  // namespace

const TrellisCpu& trellis_cpu_avx2() {
  static constexpr TrellisCpu kernels = TrellisKernel<Avx2Trellis>::table();
  return kernels;
}

}  // namespace espalier::kernels
