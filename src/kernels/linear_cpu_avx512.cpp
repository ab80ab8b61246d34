#include "kernels/dot_avx512.h"
#include "kernels/lanes_avx512.h"
#include "kernels/linear_cpu.h"
#include "kernels/linear_kernel.h"

namespace espalier::kernels {

const LinearCpu& linear_cpu_avx512() {
  static const LinearCpu kernels =
      linear_kernels<Avx512Lanes, Avx512Dot>(small_formats_avx512(), grouped_formats_avx512());
  return kernels;
}

}  // namespace espalier::kernels
