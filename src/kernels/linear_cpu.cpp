#include "kernels/linear_cpu.h"

#include "kernels/dot_scalar.h"
#include "kernels/lanes_scalar.h"
#include "kernels/linear_kernel.h"

namespace espalier::kernels {

const LinearCpu& linear_cpu_scalar() {
  static const LinearCpu kernels =
      linear_kernels<ScalarLanes, ScalarDot>(small_formats_scalar(), grouped_formats_scalar());
  return kernels;
}

const LinearCpu& linear_cpu() {
  switch (instruction_set()) {
    case InstructionSet::avx512:
      return linear_cpu_avx512();
    case InstructionSet::avx2:
      return linear_cpu_avx2();
    default:
      return linear_cpu_scalar();
  }
}

}  // namespace espalier::kernels
