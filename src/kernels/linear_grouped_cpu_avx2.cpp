#include "kernels/dot_avx2.h"
#include "kernels/lanes_avx2.h"
#include "kernels/linear_cpu.h"
#include "kernels/linear_kernel.h"

namespace espalier::kernels {

const GroupedKernels& grouped_formats_avx2() {
  static constexpr GroupedKernels kernels = format_kernels<Avx2Lanes, Avx2Dot>(GroupedFormats());
  return kernels;
}

}  // namespace espalier::kernels
