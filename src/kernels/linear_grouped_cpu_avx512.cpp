#include "kernels/dot_avx512.h"
#include "kernels/lanes_avx512.h"
#include "kernels/linear_cpu.h"
#include "kernels/linear_kernel.h"

namespace espalier::kernels {

const GroupedKernels& grouped_formats_avx512() {
  static constexpr GroupedKernels kernels =
      format_kernels<Avx512Lanes, Avx512Dot>(GroupedFormats());
  return kernels;
}

}  // namespace espalier::kernels
