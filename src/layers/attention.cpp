#include "layers/attention.h"

#include <vector>

namespace espalier::layers {
namespace {

namespace mx = mlx::core;

/// `qkv` [T, (H + 2 Hk) D] with its q and k parts normalized.
mx::array normalize_projections(const mx::array& qkv, const ProjectionNorms& norms,
                                const kernels::AttentionOptions& options) {
  const int q_end = options.heads * options.head_dim;
  const int k_end = q_end + options.kv_heads * options.head_dim;
  const std::vector<mx::array> parts = mx::split(qkv, mx::Shape{q_end, k_end}, -1);
  return mx::concatenate(
      {norms.q_norm(mx::contiguous(parts[0])), norms.k_norm(mx::contiguous(parts[1])), parts[2]},
      -1);
}

}  // namespace

mx::array Attention::attend(const mx::array& x, const Norm* norm, kernels::KvLayer& kv,
                            const std::shared_ptr<const AttentionBatch>& batch) const {
  const mx::array qkv = qkv_proj(x, {.norm = norm});
  if (!projection_norms) {
    return kernels::attention(qkv, kv, batch, options);
  }
  return kernels::attention(normalize_projections(qkv, *projection_norms, options), kv, batch,
                            options);
}

}  // namespace espalier::layers
