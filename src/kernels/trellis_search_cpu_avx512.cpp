#include "kernels/lanes_avx512.h"
#include "kernels/trellis_search.h"
#include "kernels/trellis_search_kernel.h"

namespace espalier::kernels {
namespace {

struct Avx512Search {
  using Lanes = Avx512Lanes;
  template <int bits>
  static __m512 spread(const float* p) {
    if constexpr (bits == 4) {
      return _mm512_set1_ps(*p);
    } else {
      const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      // No more than is needed: it was stored a moment ago, and must not lie in two cache lines.
      const __m128 few = bits == 2 ? _mm_loadu_ps(p)
                                   : _mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(p)));
      return _mm512_permutexvar_ps(_mm512_srli_epi32(lanes, bits), _mm512_castps128_ps512(few));
    }
  }
};

}  // namespace

const TrellisSearchCpu& trellis_search_cpu_avx512() {
  static constexpr TrellisSearchCpu kernels = TrellisSearchKernel<Avx512Search>::table();
  return kernels;
}

}  // namespace espalier::kernels
