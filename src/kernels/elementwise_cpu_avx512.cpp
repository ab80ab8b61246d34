#include "kernels/elementwise_cpu.h"
#include "kernels/elementwise_kernel.h"
#include "kernels/lanes_avx512.h"

namespace espalier::kernels {

void elementwise_cpu_avx512(const ElementRows& rows, float* scratch) {
  elementwise_rows<Avx512Lanes>(rows, scratch);
}

}  // namespace espalier::kernels
