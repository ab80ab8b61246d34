#include "kernels/lanes_avx2.h"
#include "kernels/norm_cpu.h"
#include "kernels/norm_kernel.h"

namespace espalier::kernels {

void norm_cpu_avx2(const NormRows& rows, float* scratch) { norm_rows<Avx2Lanes>(rows, scratch); }

}  // namespace espalier::kernels
