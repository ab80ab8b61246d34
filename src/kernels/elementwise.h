#pragma once

#include <optional>

#include "mlx/mlx.h"

namespace espalier::kernels {

/// A nonlinear function of one number, with up to four constants.
struct ElementFunction {
  enum class Kind {
    silu,
    gelu_tanh,
    gelu_erf,
    gelu_quick,  // x sigmoid(1.702 x)
    relu,
    relu_squared,
    sigmoid,
    tanh,
    /// c0 tanh(x / c0)
    soft_cap,
    /// xIELU (Huang and Schlag 2024): x > 0 gives c0 x^2 + c2 x, else c1 (expm1(min(x, c3)) - x) +
    /// c2 x.
    xielu,
    /// With a factor u, and x at most c1, |u| at most c1: x sigmoid(c0 x) (u + 1) (gpt-oss).
    clamped_swish,
  };

  Kind kind;
  float constants[4] = {};
};

/// function(x) for x [T, N] in f32, f16 or bf16, times `factor` when given: [T, N], or [T, 1] for
/// one a row. Alternatively x is [T, 1] and `factor` [T, N]. Computed in f32; the result has x's
/// dtype. An element's bits depend on its own operands alone.
mlx::core::array elementwise(const mlx::core::array& x, const ElementFunction& function,
                             const std::optional<mlx::core::array>& factor = std::nullopt);

/// The same at once, on data that is there: for use inside a primitive.
mlx::core::array elementwise_now(const mlx::core::array& x, const ElementFunction& function,
                                 const std::optional<mlx::core::array>& factor = std::nullopt);

/// The same value by plain MLX operations: the reference of tests.
mlx::core::array elementwise_ops(const mlx::core::array& x, const ElementFunction& function,
                                 const std::optional<mlx::core::array>& factor = std::nullopt);

}  // namespace espalier::kernels
