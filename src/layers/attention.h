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

/// Queries at position p are multiplied by 1 + beta log(1 + floor((p + offset) / interval)).
struct QueryGrowth {
  float beta;
  float interval;
  float offset;
};

/// Grouped-query attention over paged keys and values.
struct Attention {
  Linear qkv_proj;  // outputs (H + Hk) D + Hk Dv: q, k, v side by side
  Linear o_proj;
  kernels::AttentionOptions options;
  std::optional<ProjectionNorms> projection_norms = {};
  std::optional<QueryGrowth> query_growth = {};
  float value_scale = 1.0F;              // of the attended values
  std::optional<Linear> gate_proj = {};  // they are multiplied by its sigmoid, [T, H Dv]
  std::optional<Norm> output_norm = {};  // and normalized

  /// norm(x) [T, width] to the attended values [T, H Dv], before `o_proj`. Writes the rows' keys
  /// and values into `kv`.
  mlx::core::array attend(const mlx::core::array& x, const Norm* norm, kernels::KvLayer& kv,
                          const std::shared_ptr<const AttentionBatch>& batch) const;
  std::size_t bytes() const;
};

}  // namespace espalier::layers
