#include <cmath>
#include <numbers>

#include "kernels/linear.h"

namespace espalier::kernels {

namespace mx = mlx::core;

namespace {

mx::array activate(Gate gate, const mx::array& x) {
  switch (gate) {
    case Gate::silu:
      return x * mx::sigmoid(x);
    case Gate::gelu_tanh: {
      const float factor = std::sqrt(2.0F * std::numbers::inv_pi_v<float>);
      const auto inner = mx::array(factor) * (x + mx::array(0.044715F) * x * x * x);
      return mx::array(0.5F) * x * (mx::array(1.0F) + mx::tanh(inner));
    }
    case Gate::gelu_erf: {
      const auto root = mx::array(1.0F / std::numbers::sqrt2_v<float>);
      return mx::array(0.5F) * x * (mx::array(1.0F) + mx::erf(x * root));
    }
    case Gate::relu:
      return mx::maximum(x, mx::array(0.0F));
  }
  return x;
}

}  // namespace

mx::array linear_ops(const mx::array& x, const std::vector<PackedMatrix>& weights,
                     const LinearOptions& options, bool f32_output) {
  auto input = mx::astype(x, mx::float32);
  if (options.norm) {
    const auto mean = mx::mean(input * input, -1, /* keepdims = */ true);
    input = input * mx::rsqrt(mean + mx::array(options.norm->eps)) * options.norm->weight;
  }
  std::vector<mx::array> products;
  for (const auto& weight : weights) {
    products.push_back(mx::matmul(input, mx::transpose(unpack(weight))));
  }
  auto result = mx::concatenate(products, -1);
  if (options.bias) {
    result = result + *options.bias;
  }
  if (options.gate) {
    const auto halves = mx::split(result, 2, -1);
    result = activate(*options.gate, halves[0]) * halves[1];
  }
  if (options.residual) {
    result = result + mx::astype(*options.residual, mx::float32);
  }
  return f32_output ? result : mx::astype(result, x.dtype());
}

}  // namespace espalier::kernels
