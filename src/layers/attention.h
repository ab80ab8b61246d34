#pragma once

#include <memory>
#include <optional>

#include "kernels/attention.h"
#include "layers/linear.h"
#include "mlx/mlx.h"

namespace espalier::layers {

using AttentionBatch = kernels::AttentionBatch;

/// Norms over all heads of q, and of k, together (OLMo 2); per-head norms are the kernel's.
struct ProjectionNorms {
  Norm q_norm;  // over [H D]
  Norm k_norm;  // over [Hk D]
};

/// Grouped-query attention over paged keys and values.
struct Attention {
  Linear qkv_proj;  // outputs (H + 2 Hk) D: q, k, v side by side
  Linear o_proj;
  kernels::AttentionOptions options;
  std::optional<ProjectionNorms> projection_norms = {};

  /// norm(x) [T, width] to the attended values [T, H D], before `o_proj`. Writes the rows' keys and
  /// values into `kv`.
  mlx::core::array attend(const mlx::core::array& x, const Norm* norm, kernels::KvLayer& kv,
                          const std::shared_ptr<const AttentionBatch>& batch) const;
};

}  // namespace espalier::layers
