#include "kernels/dot_avx2.h"
#include "kernels/lanes_avx2.h"
#include "kernels/linear_cpu.h"
#include "kernels/linear_kernel.h"

namespace espalier::kernels {

const LinearCpu& linear_cpu_avx2() {
  static const LinearCpu kernels =
      linear_kernels<Avx2Lanes, Avx2Dot>(small_formats_avx2(), grouped_formats_avx2());
  return kernels;
}

}  // namespace espalier::kernels
