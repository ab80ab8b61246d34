#include "kernels/dot_avx2.h"
#include "kernels/lanes_avx2.h"
#include "kernels/linear_cpu.h"
#include "kernels/linear_kernel.h"

namespace espalier::kernels {

const SmallKernels& small_formats_avx2() {
  static constexpr SmallKernels kernels = format_kernels<Avx2Lanes, Avx2Dot>(SmallFormats());
  return kernels;
}

}  // namespace espalier::kernels
