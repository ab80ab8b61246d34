#pragma once

#include "kernels/trellis.h"

namespace espalier::kernels {

/// Trellis-coded weights on MLX's Metal device. Unverified: the source (trellis_metal.metal) states
/// the same contract as the CPU and CUDA kernels, but has never run on a Metal device. Every
/// function throws `UsageError` where MLX has none.

bool has_metal();

/// `trellis_linear`: f32 [T, N].
mlx::core::array trellis_linear_metal(const mlx::core::array& x, const TrellisMatrix& weight,
                                      TrellisActivations activations);

/// `expand_trellis`: [N, K] in f32, bf16 or f16.
mlx::core::array expand_trellis_metal(const TrellisMatrix& weight, mlx::core::Dtype dtype);

}  // namespace espalier::kernels
