#pragma once

#include <memory>
#include <optional>

#include "kernels/elementwise.h"
#include "kernels/recurrence.h"
#include "layers/linear.h"
#include "mlx/mlx.h"

namespace espalier::layers {

using RecurrentBatch = kernels::RecurrentBatch;

/// Where a recurrent mixer works: its layer's state, and the batch's rows.
struct RecurrentCall {
  kernels::RecurrentLayer& state;
  const std::shared_ptr<const RecurrentBatch>& batch;
};

/// A causal convolution and, where it is not the kernel's own SiLU, the function of its results.
struct Convolution {
  kernels::Convolution kernel;
  std::optional<kernels::ElementFunction> function = {};

  /// x [T, C] gives [T, C].
  mlx::core::array operator()(const mlx::core::array& x, const RecurrentCall& call) const;
};

/// Columns [first, first + count) of x [T, D], without gaps.
mlx::core::array columns(const mlx::core::array& x, int first, int count);

/// x * sigmoid(x)
mlx::core::array silu(const mlx::core::array& x);

/// ln(1 + e^x)
mlx::core::array softplus(const mlx::core::array& x);

/// RMS norm over each of `groups` equal parts of the rows of x [T, D], f32; `weight` [D] may be
/// absent.
mlx::core::array group_rms_norm(const mlx::core::array& x, int groups, float eps,
                                const std::optional<mlx::core::array>& weight);

}  // namespace espalier::layers
