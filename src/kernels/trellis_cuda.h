#pragma once

#include "kernels/trellis.h"

namespace espalier::kernels {

/// Trellis-coded weights on the first CUDA device of MLX, by kernels that MLX compiles when they
/// are first used (trellis_cuda.cuh, trellis_expand_cuda.cuh, trellis_many_cuda.cuh). Every
/// function throws `UsageError` where MLX has no CUDA device. They want compute capability 8.0;
/// products of many rows are faster on 9.0, by its warpgroup instructions. Results are lazy, on the
/// GPU's default stream.

bool has_cuda();

/// `trellis_linear`, bit for bit the same: f32 [T, N].
mlx::core::array trellis_linear_cuda(const mlx::core::array& x, const TrellisMatrix& weight,
                                     TrellisActivations activations);

/// The contract of the reference: x [T, K] as bf16 times the weight rounded to bf16, sums in f32,
/// rounded once: bf16 [T, N].
mlx::core::array trellis_linear_reference_cuda(const mlx::core::array& x,
                                               const TrellisMatrix& weight);

/// `expand_trellis`, bit for bit the same: [N, K] in f32, bf16 or f16.
mlx::core::array expand_trellis_cuda(const TrellisMatrix& weight, mlx::core::Dtype dtype);

/// f16 [elements], zeros but for a stored matrix S in row order from element `offset` on, a
/// multiple of 8. `codes` uint32 [rows of S, words] or, for pairs of trellis blocks, [words / 48,
/// rows, 48]; `scales` f32 [rows of S].
mlx::core::array fill_trellis_cuda(const mlx::core::array& codes, const mlx::core::array& scales,
                                   const TrellisFormat& format, std::int64_t offset, int elements);

}  // namespace espalier::kernels
