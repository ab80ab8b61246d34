#include "kernels/norm_cpu.h"

#include "kernels/cpu_features.h"
#include "kernels/lanes_scalar.h"
#include "kernels/norm_kernel.h"

namespace espalier::kernels {

void norm_cpu_scalar(const NormRows& rows, float* scratch) {
  norm_rows<ScalarLanes>(rows, scratch);
}

NormCpu norm_cpu() {
  switch (instruction_set()) {
    case InstructionSet::avx512:
      return norm_cpu_avx512;
    case InstructionSet::avx2:
      return norm_cpu_avx2;
    case InstructionSet::scalar:
      break;
  }
  return norm_cpu_scalar;
}

}  // namespace espalier::kernels
