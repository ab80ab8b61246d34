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
  for (int byte = 0; byte < 64; ++byte) {
    order.at(byte) = static_cast<std::uint8_t>((60 - byte / 4 * 4) * bits / 8 + byte % 4);
  }
  return order;
}

/// The bit at which the states of lane l's window begin: where they begin in the middle of a byte.
template <int bits>
constexpr int window_offset(int lane) {
  return (60 - 4 * lane) * bits % 8;
}

/// For each byte of a vector, the bit of its 64 at which it begins: a word of 32 bits has the state
/// of its weight `first` in the low bits, others above, and that of the next in its highest bits,
/// others below.
template <int bits, int state_bits, int first>
constexpr std::array<std::uint8_t, 64> state_fields() {
  std::array<std::uint8_t, 64> fields{};
  for (int byte = 0; byte < 64; ++byte) {
    const int lane = byte / 4;
    const bool next = byte % 4 >= 2;
    const int bit = lane % 2 * 32 + window_offset<bits>(lane) +
                    (3 - first - (next ? 1 : 0)) * bits + byte % 2 * 8 -
                    (next ? 16 - state_bits : 0);
    fields.at(byte) = static_cast<std::uint8_t>(bit & 63);
  }
  return fields;
}

struct Avx512Trellis {
  using Lanes = Avx512Lanes;
  using Sum = __m512i;
  static constexpr int tile_rows = 6;

  static constexpr int outputs_together = 4;

  template <int bits>
  [[gnu::always_inline]] static void states(const TrellisOperand& operand,
                                            const std::uint32_t* block, int group,
                                            __m512i* states) {
    const __m512i window = windows<bits>(block, group);
    const __m512i mask = _mm512_set1_epi32(operand.mask);
    state_pair<bits, 0>(operand, window, states);
    // Shifts of words have units of their own, which shifts of bytes leave free. At 3 bits they
    // take a step more.
    if constexpr (bits == 3) {
      state_pair<bits, 2>(operand, window, states + 2);
    } else {
      states[2] = _mm512_and_si512(_mm512_srli_epi32(window, bits), mask);
      states[3] = _mm512_and_si512(window, mask);
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
  template <TrellisActivations activations>
  static void exact_sums(const Sum* sums, std::int64_t centre, float* exact) {
    // Four lanes of 16 products each fit 32 bits with either.
    const __m512i first = add_pairs(sums[0], sums[1]);
    const __m512i second = add_pairs(sums[2], sums[3]);
    const __m512i fourths = _mm512_add_epi32(_mm512_unpacklo_epi64(first, second),
                                             _mm512_unpackhi_epi64(first, second));
    const __m256i low = _mm512_castsi512_si256(fourths);
    const __m256i high = _mm512_extracti64x4_epi64(fourths, 1);
    if constexpr (activations == TrellisActivations::int8) {
      const __m256i halves = _mm256_add_epi32(low, high);
      const __m128i whole =
          _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
      _mm_storeu_ps(exact, _mm_cvtepi32_ps(_mm_sub_epi32(
                               whole, _mm_set1_epi32(static_cast<std::int32_t>(centre)))));
    } else {
      // Integers of less than 53 bits.
      const __m512d halves = _mm512_add_pd(_mm512_cvtepi32_pd(low), _mm512_cvtepi32_pd(high));
      const __m256d whole =
          _mm256_add_pd(_mm512_castpd512_pd256(halves), _mm512_extractf64x4_pd(halves, 1));
      _mm_storeu_ps(exact, _mm256_cvtpd_ps(
                               _mm256_sub_pd(whole, _mm256_set1_pd(static_cast<double>(centre)))));
    }
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
  /// Lane l: 32 bits that hold the states of the group's weights 4 l .. 4 l + 3.
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
  /// Lanes l and l + 2 of each four added, of a and b in turns.
  static __m512i add_pairs(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  }
  /// The states of weights 4 l + first and the next in lane l of two vectors.
  template <int bits, int first>
  [[gnu::always_inline]] static void state_pair(const TrellisOperand& operand, __m512i window,
                                                __m512i* states) {
    alignas(64) static constexpr std::array fields = {state_fields<bits, 12, first>(),
                                                      state_fields<bits, 16, first>()};
    const int state_bits = operand.format.state_bits;
    const __m512i order = _mm512_load_si512(fields[state_bits == 12 ? 0 : 1].data());
    const __m512i both = _mm512_multishift_epi64_epi8(order, window);
    states[0] = _mm512_and_si512(both, _mm512_set1_epi32(operand.mask));
    states[1] = _mm512_srlv_epi32(both, _mm512_set1_epi32(32 - state_bits));
  }
};

}  // namespace

const TrellisCpu& trellis_cpu_avx512() {
  static constexpr TrellisCpu kernels = TrellisKernel<Avx512Trellis>::table();
  return kernels;
}

}  // namespace espalier::kernels
