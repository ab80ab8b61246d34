#pragma once

#include <vector>

#include "kernels/linear.h"
#include "mlx/mlx.h"

namespace espalier::kernels {

/// A matrix [N, K] for each head, applied to K elements of each row: those from `stride` times the
/// head on. x is [T, columns] in f32, f16 or bf16; gives [T, H N] in the same dtype. Activations
/// enter in f32. Row-invariant, as `linear`.
mlx::core::array head_linear(const mlx::core::array& x, int stride,
                             const std::vector<PackedMatrix>& heads);

/// The same value by plain MLX operations: the reference of tests.
mlx::core::array head_linear_ops(const mlx::core::array& x, int stride,
                                 const std::vector<PackedMatrix>& heads);

}  // namespace espalier::kernels
