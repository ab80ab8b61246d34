#include "layers/latent_attention.h"

#include "kernels/head_linear.h"

namespace espalier::layers {

namespace mx = mlx::core;

mx::array LatentAttention::attend(const mx::array& x, const Norm* norm, kernels::KvLayer& kv,
                                  const std::shared_ptr<const AttentionBatch>& batch) const {
  const int rows = x.shape(0);
  const int heads = options.heads;
  const int rope = options.rope->dims;
  const int rank = options.values();
  const int nope = key_up.front().columns;
  const mx::array q = q_down ? q_proj(q_down->proj(x, {.norm = norm}), {.norm = &q_down->norm})
                             : q_proj(x, {.norm = norm});
  // [T, H, rope + R]: the rotated part first, as the kernel has it.
  const mx::array q_latent =
      mx::reshape(kernels::head_linear(q, nope + rope, key_up), {rows, heads, rank});
  const mx::array q_rope = mx::slice(mx::reshape(q, {rows, heads, nope + rope}), {0, 0, nope},
                                     {rows, heads, nope + rope});
  const mx::array queries =
      mx::reshape(mx::concatenate({q_rope, q_latent}, 2), {rows, heads * (rope + rank)});
  const std::vector<mx::array> down = mx::split(kv_down(x, {.norm = norm}), mx::Shape{rank}, -1);
  const mx::array latent = kv_norm(mx::contiguous(down[0]));
  const mx::array attended =
      kernels::attention(mx::concatenate({queries, down[1], latent}, 1), kv, batch, options);
  return kernels::head_linear(attended, rank, value_up);
}

std::size_t LatentAttention::bytes() const {
  std::size_t total = q_proj.bytes() + kv_down.bytes() + o_proj.bytes();
  if (q_down) {
    total += q_down->proj.bytes();
  }
  for (const auto* matrices : {&key_up, &value_up}) {
    for (const kernels::PackedMatrix& matrix : *matrices) {
      total += matrix.bytes();
    }
  }
  return total;
}

}  // namespace espalier::layers
