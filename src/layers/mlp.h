#pragma once

#include <optional>

#include "kernels/elementwise.h"
#include "layers/activation.h"
#include "layers/linear.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// A feed-forward part: gated, down(activation(x Wg) * (x Wu)), or plain, down(activation(x Wu)).
struct Mlp {
  Linear input;  // {gate_proj, up_proj}, or up_proj alone
  Linear down_proj;
  Activation activation;
  std::optional<kernels::ElementFunction> learned = {};  // xIELU's constants
  std::optional<Norm> hidden_norm = {};                  // of what `hidden` returns
  float gate_scale = 1.0F;                               // on the gate, inside the activation
  /// Of the gate only what exceeds mean + so many standard deviations goes on, less that.
  std::optional<float> gate_cutoff = {};

  /// norm(x) [T, D] up to the hidden layer, [T, hidden].
  mlx::core::array hidden(const mlx::core::array& x, const Norm* norm) const;
};

/// The linear kernel's own epilogue for a gated pair; nothing where it has none.
std::optional<kernels::Gate> fused_gate(Activation activation);

/// The function as the elementwise kernel has it. An internal error for one with learned constants.
kernels::ElementFunction element_function(Activation activation);

}  // namespace espalier::layers
