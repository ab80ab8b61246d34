#include "kernels/lanes_avx512.h"
#include "kernels/norm_cpu.h"
#include "kernels/norm_kernel.h"

namespace espalier::kernels {

void norm_cpu_avx512(const NormRows& rows, float* scratch) {
  norm_rows<Avx512Lanes>(rows, scratch);
}

}  // namespace espalier::kernels
