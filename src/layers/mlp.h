#pragma once

#include "layers/activation.h"
#include "layers/linear.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// A feed-forward part: gated, down(activation(x Wg) * (x Wu)), or plain, down(activation(x Wu)).
struct Mlp {
  Linear input;  // {gate_proj, up_proj}, or up_proj alone
  Linear down_proj;
  Activation activation;

  /// norm(x) [T, D] up to the hidden layer, [T, hidden].
  mlx::core::array hidden(const mlx::core::array& x, const Norm* norm) const;
};

/// Element by element, in f32; the result has x's dtype.
mlx::core::array activate(const mlx::core::array& x, Activation activation);

}  // namespace espalier::layers
