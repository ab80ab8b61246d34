#include "kernels/elementwise_cpu.h"

#include "kernels/cpu_features.h"
#include "kernels/elementwise_kernel.h"
#include "kernels/lanes_scalar.h"

namespace espalier::kernels {

void elementwise_cpu_scalar(const ElementRows& rows, float* scratch) {
  elementwise_rows<ScalarLanes>(rows, scratch);
}

ElementwiseCpu elementwise_cpu() {
  switch (instruction_set()) {
    case InstructionSet::avx512:
      return elementwise_cpu_avx512;
    case InstructionSet::avx2:
      return elementwise_cpu_avx2;
    case InstructionSet::scalar:
      break;
  }
  return elementwise_cpu_scalar;
}

}  // namespace espalier::kernels
