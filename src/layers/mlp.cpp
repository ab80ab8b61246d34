#include "layers/mlp.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "layers/row_work.h"

namespace espalier::layers {

namespace mx = mlx::core;

namespace {

/// max(x - (mean + deviations * standard deviation), 0).
struct CutOffRow {
  float deviations;

  void operator()(const std::vector<RowView>& inputs, std::vector<float>& out) const {
    const RowView& x = inputs[0];
    const auto size = static_cast<double>(x.size());
    double mean = 0;
    for (const float value : x) {
      mean += value / size;
    }
    double variance = 0;
    for (const float value : x) {
      variance += (value - mean) * (value - mean) / size;
    }
    const auto limit = static_cast<float>(mean + deviations * std::sqrt(variance));
    std::ranges::transform(x, out.begin(),
                           [&](float value) { return std::max(value - limit, 0.0F); });
  }
};

}  // namespace

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
    default:
      return std::nullopt;
  }
}

kernels::ElementFunction element_function(Activation activation) {
  using Kind = kernels::ElementFunction::Kind;
  constexpr float clamped_swish_slope = 1.702F;
  constexpr float clamped_swish_limit = 7.0F;
  switch (activation) {
    case Activation::silu:
      return {.kind = Kind::silu};
    case Activation::gelu_tanh:
      return {.kind = Kind::gelu_tanh};
    case Activation::gelu_erf:
      return {.kind = Kind::gelu_erf};
    case Activation::gelu_quick:
      return {.kind = Kind::gelu_quick};
    case Activation::relu:
      return {.kind = Kind::relu};
    case Activation::relu_squared:
      return {.kind = Kind::relu_squared};
    case Activation::sigmoid:
      return {.kind = Kind::sigmoid};
    case Activation::tanh:
      return {.kind = Kind::tanh};
    case Activation::clamped_swish:
      return {.kind = Kind::clamped_swish, .constants = {clamped_swish_slope, clamped_swish_limit}};
    case Activation::xielu:
      break;
  }
  throw std::logic_error("[element_function] expected a function without learned constants");
}

mx::array Mlp::hidden(const mx::array& x, const Norm* norm) const {
  const bool gated = input.weights().size() == 2;
  const std::optional<kernels::Gate> gate = gated && gate_scale == 1.0F && !gate_cutoff
                                                ? fused_gate(activation)
                                                : std::optional<kernels::Gate>();
  mx::array y = input(x, {.norm = norm, .gate = gate});
  if (!gate) {
    const kernels::ElementFunction function = learned ? *learned : element_function(activation);
    if (gated) {
      const std::vector<mx::array> halves = mx::split(y, 2, -1);
      const mx::array scaled =
          gate_scale == 1.0F ? halves[0] : halves[0] * mx::array(gate_scale, y.dtype());
      const mx::array cut =
          gate_cutoff ? by_rows(CutOffRow{*gate_cutoff}, scaled.shape(), scaled.dtype(), {scaled})
                      : scaled;
      y = kernels::elementwise(cut, function, halves[1]);
    } else {
      y = kernels::elementwise(y, function);
    }
  }
  return hidden_norm ? (*hidden_norm)(y) : y;
}

}  // namespace espalier::layers
