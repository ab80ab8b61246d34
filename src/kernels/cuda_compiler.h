#pragma once

#include <string>

namespace espalier::kernels {

/// Whether the process has NVRTC, which the CUDA build of MLX brings along.
bool has_cuda_compiler();

/// The machine code of `source`, whose kernels have C names, for one architecture ("sm_90a"). MLX's
/// own compilation names no architecture with an "a", without which warpgroup instructions are
/// refused. Compiles each `name` once; thread-safe. Throws `std::runtime_error` with the compiler's
/// words.
const std::string& compile_cuda(const std::string& name, const std::string& source,
                                const std::string& architecture);

}  // namespace espalier::kernels
