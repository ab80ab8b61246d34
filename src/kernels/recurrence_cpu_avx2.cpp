#include "kernels/lanes_avx2.h"
#include "kernels/recurrence_cpu.h"
#include "kernels/recurrence_kernel.h"

namespace espalier::kernels {

const RecurrenceCpu& recurrence_cpu_avx2() { return recurrence_table<Avx2Lanes>(); }

}  // namespace espalier::kernels
