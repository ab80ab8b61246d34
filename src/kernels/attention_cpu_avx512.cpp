#include "kernels/attention_cpu.h"
#include "kernels/attention_kernel.h"
#include "kernels/lanes_avx512.h"

namespace espalier::kernels {

const AttentionCpu& attention_cpu_avx512() {
  static constexpr AttentionCpu kernels = attention_kernels<Avx512Lanes>();
  return kernels;
}

}  // namespace espalier::kernels
