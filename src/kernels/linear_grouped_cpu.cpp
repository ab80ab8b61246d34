#include "kernels/dot_scalar.h"
#include "kernels/lanes_scalar.h"
#include "kernels/linear_cpu.h"
#include "kernels/linear_kernel.h"

namespace espalier::kernels {

const GroupedKernels& grouped_formats_scalar() {
  static constexpr GroupedKernels kernels =
      format_kernels<ScalarLanes, ScalarDot>(GroupedFormats());
  return kernels;
}

}  // namespace espalier::kernels
