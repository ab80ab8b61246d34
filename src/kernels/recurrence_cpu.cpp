#include "kernels/recurrence_cpu.h"

#include "kernels/cpu_features.h"
#include "kernels/lanes_scalar.h"
#include "kernels/recurrence_kernel.h"

namespace espalier::kernels {

const RecurrenceCpu& recurrence_cpu_scalar() { return recurrence_table<ScalarLanes>(); }

const RecurrenceCpu& recurrence_cpu() {
  switch (instruction_set()) {
    case InstructionSet::avx512:
      return recurrence_cpu_avx512();
    case InstructionSet::avx2:
      return recurrence_cpu_avx2();
    case InstructionSet::scalar:
      break;
  }
  return recurrence_cpu_scalar();
}

}  // namespace espalier::kernels
