#include "layers/recurrent.h"

#include "kernels/norm.h"

namespace espalier::layers {

namespace mx = mlx::core;

mx::array columns(const mx::array& x, int first, int count) {
  return mx::contiguous(mx::slice(x, {0, first}, {x.shape(0), first + count}));
}

mx::array Convolution::operator()(const mx::array& x, const RecurrentCall& call) const {
  const mx::array y = kernels::causal_convolution(x, call.state.convolution, call.batch, kernel);
  return function ? kernels::elementwise(y, *function) : y;
}

mx::array silu(const mx::array& x) { return x * mx::sigmoid(x); }

mx::array softplus(const mx::array& x) { return mx::logaddexp(x, mx::array(0.0F)); }

mx::array group_rms_norm(const mx::array& x, int groups, float eps,
                         const std::optional<mx::array>& weight) {
  const int size = x.shape(1) / groups;
  if (groups == 1 && weight) {
    return kernels::rms_norm(x, {.weight = *weight, .eps = eps});
  }
  const mx::array rows = mx::reshape(x, {x.shape(0) * groups, size});
  const mx::array normed =
      mx::reshape(kernels::rms_norm(rows, {.weight = mx::ones({size}), .eps = eps}), x.shape());
  return weight ? normed * *weight : normed;
}

}  // namespace espalier::layers
