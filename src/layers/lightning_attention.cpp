#include "layers/lightning_attention.h"

#include "kernels/norm.h"

namespace espalier::layers {

namespace mx = mlx::core;

mx::array LightningAttention::mix(const mx::array& x, const Norm* input_norm,
                                  const RecurrentCall& call) const {
  const int rows = x.shape(0);
  const int size = heads * head_dim;
  const mx::array projected = in_proj(x, {.norm = input_norm, .f32_output = true});
  const mx::array qkv = mx::reshape(kernels::elementwise(columns(projected, 0, 3 * size), function),
                                    {rows, heads, 3 * head_dim});
  const auto part = [&](int index) {
    return mx::contiguous(
        mx::slice(qkv, {0, 0, index * head_dim}, {rows, heads, (index + 1) * head_dim}));
  };
  const mx::array y =
      kernels::linear_recurrence({.q = part(0),
                                  .k = part(1),
                                  .v = part(2),
                                  .decay = mx::contiguous(mx::broadcast_to(decay, {rows, heads})),
                                  .beta = {}},
                                 call.state.state, call.batch);
  const mx::array normed = kernels::rms_norm(mx::reshape(y, {rows, size}), norm);
  return mx::astype(mx::sigmoid(columns(projected, 3 * size, size)) * normed, x.dtype());
}

std::size_t LightningAttention::bytes() const { return in_proj.bytes() + out_proj.bytes(); }

}  // namespace espalier::layers
