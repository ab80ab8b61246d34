#include "kernels/lanes_avx2.h"
#include "kernels/trellis_search.h"
#include "kernels/trellis_search_kernel.h"

namespace espalier::kernels {
namespace {

struct Avx2Search {
  using Lanes = Avx2Lanes;
  template <int bits>
  static __m256 spread(const float* p) {
    if constexpr (bits == 2) {
      const __m128 low = _mm_broadcast_ss(p);
      return _mm256_insertf128_ps(_mm256_castps128_ps256(low), _mm_broadcast_ss(p + 1), 1);
    } else {
      return _mm256_broadcast_ss(p);
    }
  }
};

}  // namespace

const TrellisSearchCpu& trellis_search_cpu_avx2() {
  static constexpr TrellisSearchCpu kernels = TrellisSearchKernel<Avx2Search>::table();
  return kernels;
}

}  // namespace espalier::kernels
