#pragma once

namespace espalier::layers {

/// The nonlinear function of a feed-forward part.
enum class Activation { silu, gelu_tanh, gelu_erf, relu, relu_squared };

}  // namespace espalier::layers
