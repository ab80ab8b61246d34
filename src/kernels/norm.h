#pragma once

#include <optional>

#include "kernels/linear.h"
#include "mlx/mlx.h"

namespace espalier::kernels {

/// RMS norm of each row of x [T, D] in f32 arithmetic with a fixed summation order, plus `residual`
/// [T, D] when given. Result in x's dtype.
mlx::core::array rms_norm(const mlx::core::array& x, const RmsNorm& norm,
                          const std::optional<mlx::core::array>& residual = std::nullopt);
mlx::core::array rms_norm_ops(const mlx::core::array& x, const RmsNorm& norm,
                              const std::optional<mlx::core::array>& residual = std::nullopt);

}  // namespace espalier::kernels
