#include "kernels/elementwise_cpu.h"
#include "kernels/elementwise_kernel.h"
#include "kernels/lanes_avx2.h"

namespace espalier::kernels {

void elementwise_cpu_avx2(const ElementRows& rows, float* scratch) {
  elementwise_rows<Avx2Lanes>(rows, scratch);
}

}  // namespace espalier::kernels
