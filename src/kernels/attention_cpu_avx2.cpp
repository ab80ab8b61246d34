#include "kernels/attention_cpu.h"
#include "kernels/attention_kernel.h"
#include "kernels/lanes_avx2.h"

namespace espalier::kernels {

const AttentionCpu& attention_cpu_avx2() {
  static constexpr AttentionCpu kernels = attention_kernels<Avx2Lanes>();
  return kernels;
}

}  // namespace espalier::kernels
