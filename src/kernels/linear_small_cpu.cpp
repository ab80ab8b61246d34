#include "kernels/dot_scalar.h"
#include "kernels/lanes_scalar.h"
#include "kernels/linear_cpu.h"
#include "kernels/linear_kernel.h"

namespace espalier::kernels {

const SmallKernels& small_formats_scalar() {
  static constexpr SmallKernels kernels = format_kernels<ScalarLanes, ScalarDot>(SmallFormats());
  return kernels;
}

}  // namespace espalier::kernels
