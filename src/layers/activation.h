#pragma once

namespace espalier::layers {

/// The nonlinear function of a feed-forward part.
enum class Activation {
  silu,
  gelu_tanh,
  gelu_erf,
  gelu_quick,
  relu,
  relu_squared,
  sigmoid,
  tanh,
  /// gpt-oss: x sigmoid(1.702 x) times (up + 1), both clamped.
  clamped_swish,
  /// Apertus: a piecewise function with learned constants.
  xielu,
};

}  // namespace espalier::layers
