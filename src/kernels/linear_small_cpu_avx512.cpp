#include "kernels/dot_avx512.h"
#include "kernels/lanes_avx512.h"
#include "kernels/linear_cpu.h"
#include "kernels/linear_kernel.h"

namespace espalier::kernels {

const SmallKernels& small_formats_avx512() {
  static constexpr SmallKernels kernels = format_kernels<Avx512Lanes, Avx512Dot>(SmallFormats());
  return kernels;
}

}  // namespace espalier::kernels
