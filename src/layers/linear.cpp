#include "layers/linear.h"

#include <utility>

#include "layers/linear_observer.h"

namespace espalier::layers {

namespace mx = mlx::core;

Linear::Linear(std::vector<kernels::PackedMatrix> weights, std::optional<mx::array> bias,
               std::optional<ActivationFormat> activations)
    : weights_(std::move(weights)), bias_(std::move(bias)), activations_(activations) {}

mx::array Linear::operator()(const mx::array& x, const LinearCall& call) const {
  kernels::LinearOptions options{.norm = std::nullopt,
                                 .bias = bias_,
                                 .gate = call.gate,
                                 .residual = call.residual,
                                 .activations = activations_};
  if (LinearObserver* observer = LinearObserver::current()) {
    observer->multiplied(weights_, call.norm == nullptr ? x : (*call.norm)(x));
  }
  if (call.norm == nullptr) {
    return kernels::linear(x, weights_, options, call.f32_output);
  }
  if (const kernels::RmsNorm* rms = call.norm->rms()) {
    options.norm = *rms;
    return kernels::linear(x, weights_, options, call.f32_output);
  }
  return kernels::linear((*call.norm)(x), weights_, options, call.f32_output);
}

std::size_t Linear::bytes() const {
  std::size_t total = 0;
  for (const kernels::PackedMatrix& weight : weights_) {
    total += weight.bytes();
  }
  return total;
}

mx::array join(const mx::array& residual, const Join& join, const Linear& projection,
               const mx::array& x) {
  if (join.scale == 1.0F && join.residual_scale == 1.0F && !join.norm) {
    const mx::array sum = projection(x, {.residual = residual});
    return join.sum_norm ? (*join.sum_norm)(sum) : sum;
  }
  return layers::join(residual, join, projection(x));
}

mx::array join(const mx::array& residual, const Join& join, const mx::array& y) {
  if (join.sum_norm) {
    Join plain = join;
    plain.sum_norm.reset();
    return (*join.sum_norm)(layers::join(residual, plain, y));
  }
  if (join.residual_scale != 1.0F) {
    return layers::join(residual * mx::array(join.residual_scale, residual.dtype()),
                        {.norm = join.norm, .scale = join.scale}, y);
  }
  if (join.scale != 1.0F) {
    const mx::array branch = join.norm ? (*join.norm)(y) : y;
    return residual + branch * mx::array(join.scale, branch.dtype());
  }
  return join.norm ? (*join.norm)(y, residual) : residual + y;
}

}  // namespace espalier::layers
