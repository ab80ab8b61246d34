#include "kernels/lanes_avx512.h"
#include "kernels/recurrence_cpu.h"
#include "kernels/recurrence_kernel.h"

namespace espalier::kernels {

const RecurrenceCpu& recurrence_cpu_avx512() { return recurrence_table<Avx512Lanes>(); }

}  // namespace espalier::kernels
