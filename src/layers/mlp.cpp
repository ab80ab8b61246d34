#include "layers/mlp.h"

#include <numbers>
#include <optional>
#include <stdexcept>
#include <vector>

namespace espalier::layers {
namespace {

namespace mx = mlx::core;

/// The linear kernel's own epilogue for a gated pair; nothing where it has none.
std::optional<kernels::Gate> fused_gate(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return kernels::Gate::silu;
    case Activation::gelu_tanh:
      return kernels::Gate::gelu_tanh;
    case Activation::gelu_erf:
      return kernels::Gate::gelu_erf;
    case Activation::relu:
      return kernels::Gate::relu;
    case Activation::relu_squared:
      return std::nullopt;
  }
  throw std::logic_error("[fused_gate] unknown activation");
}

mx::array constant(double value) { return mx::array(static_cast<float>(value)); }

mx::array activate_f32(const mx::array& x, Activation activation) {
  switch (activation) {
    case Activation::silu:
      return x * mx::sigmoid(x);
    case Activation::gelu_tanh: {
      const mx::array cubed = constant(0.044715) * x * x * x;
      const mx::array inner =
          constant(std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * (x + cubed);
      return constant(0.5) * x * (constant(1) + mx::tanh(inner));
    }
    case Activation::gelu_erf:
      return constant(0.5) * x * (constant(1) + mx::erf(x * constant(1 / std::numbers::sqrt2)));
    case Activation::relu:
      return mx::maximum(x, constant(0));
    case Activation::relu_squared:
      return mx::square(mx::maximum(x, constant(0)));
  }
  throw std::logic_error("[activate] unknown activation");
}

}  // namespace

mx::array Mlp::hidden(const mx::array& x, const Norm* norm) const {
  const bool gated = input.weights().size() == 2;
  if (!gated) {
    return activate(input(x, {.norm = norm}), activation);
  }
  if (const std::optional<kernels::Gate> gate = fused_gate(activation)) {
    return input(x, {.norm = norm, .gate = gate});
  }
  const std::vector<mx::array> halves = mx::split(input(x, {.norm = norm}), 2, -1);
  return mx::contiguous(activate(halves[0], activation) * halves[1]);
}

mx::array activate(const mx::array& x, Activation activation) {
  return mx::astype(activate_f32(mx::astype(x, mx::float32), activation), x.dtype());
}

}  // namespace espalier::layers
