#include "layers/layer_inputs.h"

#include <cmath>
#include <numbers>

namespace espalier::layers {

namespace mx = mlx::core;

std::vector<mx::array> LayerInputs::operator()(const mx::array& tokens, const mx::array& x) const {
  const int rows = x.shape(0);
  const int layers = embedding.columns / size;
  const auto scalar = [&](double value) { return mx::array(static_cast<float>(value), x.dtype()); };
  const mx::array known = vocabulary == 0 ? tokens
                                          : mx::where(mx::less(tokens, mx::array(vocabulary)),
                                                      tokens, mx::zeros_like(tokens));
  const mx::array looked_up =
      kernels::embedding(known, embedding, std::sqrt(static_cast<float>(size)), x.dtype());
  const mx::array projected =
      projection(x) * scalar(1 / std::sqrt(static_cast<double>(x.shape(1))));
  const mx::array normed =
      mx::reshape(norm(mx::reshape(projected, {rows * layers, size})), {rows, layers * size});
  return mx::split((normed + looked_up) * scalar(1 / std::numbers::sqrt2), layers, 1);
}

mx::array LayerInputGate::operator()(const mx::array& x, const mx::array& vector) const {
  return norm(output(kernels::elementwise(gate(x), activation, vector)), x);
}

mx::array LayerInputGate::part(const mx::array& x, const mx::array& vector) const {
  return norm(output(kernels::elementwise(gate(x), activation, vector)));
}

}  // namespace espalier::layers
