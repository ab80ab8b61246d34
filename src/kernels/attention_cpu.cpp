#include "kernels/attention_cpu.h"

#include "kernels/attention_kernel.h"
#include "kernels/cpu_features.h"
#include "kernels/lanes_scalar.h"

namespace espalier::kernels {

const AttentionCpu& attention_cpu_scalar() {
  static constexpr AttentionCpu kernels = attention_kernels<ScalarLanes>();
  return kernels;
}

const AttentionCpu& attention_cpu() {
  switch (instruction_set()) {
    case InstructionSet::avx512:
      return attention_cpu_avx512();
    case InstructionSet::avx2:
      return attention_cpu_avx2();
    case InstructionSet::scalar:
      break;
  }
  return attention_cpu_scalar();
}

}  // namespace espalier::kernels
