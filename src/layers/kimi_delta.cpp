#include "layers/kimi_delta.h"

#include <cmath>

#include "kernels/norm.h"
#include "layers/gated_delta.h"

namespace espalier::layers {

namespace mx = mlx::core;

mx::array KimiDelta::mix(const mx::array& x, const Norm* norm, const RecurrentCall& call) const {
  const int rows = x.shape(0);
  const int size = heads * head_dim;
  const mx::array projected = in_proj(x, {.norm = norm, .f32_output = true});
  const mx::array qkv = conv1d(columns(projected, 0, 3 * size), call);
  const mx::array rate = mx::sigmoid(columns(projected, 3 * size, heads));
  const mx::array step =
      softplus(f_b_proj(columns(projected, 3 * size + heads, head_dim)) + dt_bias);
  const mx::array gate = g_b_proj(columns(projected, 3 * size + heads + head_dim, head_dim));
  const mx::array y = kernels::linear_recurrence(
      {.q = unit_heads(columns(qkv, 0, size), head_dim,
                       1.0F / std::sqrt(static_cast<float>(head_dim))),
       .k = unit_heads(columns(qkv, size, size), head_dim, 1.0F),
       .v = mx::reshape(columns(qkv, 2 * size, size), {rows, heads, head_dim}),
       .decay = mx::exp(mx::reshape(step, {rows, heads, head_dim}) * a),
       .beta = rate},
      call.state.state, call.batch);
  const mx::array normed = kernels::rms_norm(mx::reshape(y, {rows * heads, head_dim}), o_norm);
  return mx::astype(mx::reshape(normed, {rows, size}) * mx::sigmoid(gate), x.dtype());
}

std::size_t KimiDelta::bytes() const {
  return in_proj.bytes() + f_b_proj.bytes() + g_b_proj.bytes() + out_proj.bytes();
}

}  // namespace espalier::layers
