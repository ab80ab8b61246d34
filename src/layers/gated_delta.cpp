#include "layers/gated_delta.h"

#include <cmath>
#include <vector>

#include "kernels/norm.h"

namespace espalier::layers {
namespace {

namespace mx = mlx::core;

/// What the projection gives, each [T, ...].
struct Projected {
  mx::array qkv;
  mx::array gate;
  mx::array rate;
  mx::array decay;
};

Projected split_projected(const GatedDelta& mixer, const mx::array& projected) {
  const int keys = mixer.key_heads * mixer.key_dim;
  const int values = mixer.value_heads * mixer.value_dim;
  const int qkv = 2 * keys + values;
  if (!mixer.by_key_head) {
    return {.qkv = columns(projected, 0, qkv),
            .gate = columns(projected, qkv, values),
            .rate = columns(projected, qkv + values, mixer.value_heads),
            .decay = columns(projected, qkv + values + mixer.value_heads, mixer.value_heads)};
  }
  const int rows = projected.shape(0);
  const int groups = mixer.key_heads;
  // Column `first` of every key head's part of [T, size * groups], `count` columns wide.
  const auto part = [&](int begin, int size, int first, int count) {
    const mx::array heads =
        mx::reshape(columns(projected, begin, size * groups), {rows, groups, size});
    return mx::reshape(mx::slice(heads, {0, 0, first}, {rows, groups, first + count}),
                       {rows, groups * count});
  };
  const int k = mixer.key_dim;
  const int v = values / groups;
  const int size = 2 * k + 2 * v;
  const int rates = mixer.value_heads / groups;
  return {.qkv = mx::concatenate(
              {part(0, size, 0, k), part(0, size, k, k), part(0, size, 2 * k, v)}, 1),
          .gate = part(0, size, 2 * k + v, v),
          .rate = part(size * groups, 2 * rates, 0, rates),
          .decay = part(size * groups, 2 * rates, rates, rates)};
}

}  // namespace

mx::array unit_heads(const mx::array& x, int dim, float scale) {
  // FLA's epsilon, on the sum of squares.
  constexpr float eps = 1e-6F;
  const auto size = static_cast<float>(dim);
  const kernels::RmsNorm norm{.weight = mx::full({dim}, scale / std::sqrt(size)),
                              .eps = eps / size};
  const int heads = x.shape(1) / dim;
  return mx::reshape(kernels::rms_norm(mx::reshape(x, {x.shape(0) * heads, dim}), norm),
                     {x.shape(0), heads, dim});
}

mx::array GatedDelta::mix(const mx::array& x, const Norm* input_norm,
                          const RecurrentCall& call) const {
  const int rows = x.shape(0);
  const int keys = key_heads * key_dim;
  const int values = value_heads * value_dim;
  const Projected parts =
      split_projected(*this, in_proj(x, {.norm = input_norm, .f32_output = true}));
  const mx::array qkv = conv1d(parts.qkv, call);
  mx::array rate = mx::sigmoid(parts.rate);
  if (rate_scale != 1.0F) {
    rate = rate * mx::array(rate_scale);
  }
  const mx::array y = kernels::linear_recurrence(
      {.q = unit_heads(columns(qkv, 0, keys), key_dim,
                       1.0F / std::sqrt(static_cast<float>(key_dim))),
       .k = unit_heads(columns(qkv, keys, keys), key_dim, 1.0F),
       .v = mx::reshape(columns(qkv, 2 * keys, values), {rows, value_heads, value_dim}),
       .decay = mx::exp(softplus(parts.decay + dt_bias) * a),
       .beta = rate},
      call.state.state, call.batch);
  const mx::array normed = kernels::rms_norm(mx::reshape(y, {rows * value_heads, value_dim}), norm);
  return mx::astype(mx::reshape(normed, {rows, values}) * silu(parts.gate), x.dtype());
}

std::size_t GatedDelta::bytes() const { return in_proj.bytes() + out_proj.bytes(); }

}  // namespace espalier::layers
