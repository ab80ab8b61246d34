#pragma once

#include <string>

#include "kernels/trellis.h"

namespace espalier::kernels {

/// What the kernels on GPUs share: how they see a packed matrix, and how source text names it.

/// The words of a packed matrix on the GPU's stream: uint32 [N, K / 256, words] for axis 1,
/// [N / 256, K, words] for axis 0.
mlx::core::array trellis_words(const TrellisMatrix& weight);

/// [N, K] from the elements of the stored matrix, in its row order.
mlx::core::array trellis_matrix_of(const mlx::core::array& stored, const TrellisMatrix& weight);

/// The template arguments "bits, state bits, code" of device functions; code 0 for 1mad, 1 for
/// mul1.
std::string trellis_arguments(const TrellisFormat& format);

/// A part of kernels' names that tells formats apart.
std::string trellis_name(const TrellisFormat& format);

/// Throws `std::invalid_argument` naming `function` unless x is [T, K] of floating point numbers.
void require_trellis_rows(const char* function, const mlx::core::array& x,
                          const TrellisMatrix& weight);

/// Whether products with this matrix run on MLX's default device because that is a GPU for which
/// there are kernels.
bool runs_on_gpu(const TrellisMatrix& weight);

/// `trellis_linear` on that GPU: x [T, K] gives f32 [T, N].
mlx::core::array trellis_linear_gpu(const mlx::core::array& x, const TrellisMatrix& weight,
                                    TrellisActivations activations);

}  // namespace espalier::kernels
