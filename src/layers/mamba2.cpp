#include "layers/mamba2.h"

#include <cmath>

namespace espalier::layers {
namespace {

namespace mx = mlx::core;

/// The gate and, where there is one, the norm.
mx::array gate_output(const mx::array& y, const mx::array& gate,
                      const std::optional<Mamba2::OutputNorm>& norm) {
  if (!norm) {
    return y * silu(gate);
  }
  const auto normalize = [&](const mx::array& values) {
    return group_rms_norm(values, norm->groups, norm->eps, norm->weight);
  };
  return norm->before_gate ? normalize(y) * silu(gate) : normalize(y * silu(gate));
}

}  // namespace

mx::array Mamba2::mix(const mx::array& x, const Norm* norm, const RecurrentCall& call) const {
  const int rows = x.shape(0);
  const int channels = heads * head_dim;
  const int shared = groups * states;
  mx::array projected = in_proj(x, {.norm = norm, .f32_output = true});
  if (input_scales) {
    projected = projected * *input_scales;
  }
  const mx::array gate = columns(projected, 0, channels);
  const mx::array convolved = conv1d(columns(projected, channels, channels + 2 * shared), call);
  mx::array step = softplus(columns(projected, 2 * channels + 2 * shared, heads) + dt_bias);
  if (least_step > 0.0F || std::isfinite(most_step)) {
    step = mx::clip(step, mx::array(least_step), mx::array(most_step));
  }
  const mx::array input = mx::reshape(columns(convolved, 0, channels), {rows, heads, head_dim});
  const auto group_rows = [&](int first) {
    return mx::reshape(columns(convolved, first, shared), {rows, groups, states});
  };
  const mx::array y = kernels::linear_recurrence({.q = group_rows(channels + shared),
                                                  .k = group_rows(channels),
                                                  .v = input * mx::expand_dims(step, 2),
                                                  .decay = mx::exp(step * a),
                                                  .beta = {}},
                                                 call.state.state, call.batch);
  const mx::array with_skip = mx::reshape(y + input * skip, {rows, channels});
  return mx::astype(gate_output(with_skip, gate, output_norm), x.dtype());
}

std::size_t Mamba2::bytes() const { return in_proj.bytes() + out_proj.bytes(); }

}  // namespace espalier::layers
