#pragma once

#include <memory>
#include <optional>

#include "kernels/attention.h"
#include "layers/linear.h"
#include "mlx/mlx.h"

namespace espalier::layers {

using AttentionBatch = kernels::AttentionBatch;

/// A norm of the rows of q or k, [T, H D], `columns` of them at a time.
struct ProjectionNorm {
  Norm norm;  // over `columns`
  int columns;
  std::optional<mlx::core::array> weight = {};  // f32 [H D]: a factor on each column besides

  mlx::core::array operator()(const mlx::core::array& x) const;
};

/// Norms before RoPE that are not the kernel's: over all heads together (OLMo 2), layer norms of
/// heads (Phi), or with weights of its own for each head (Command R+).
struct ProjectionNorms {
  ProjectionNorm q_norm;
  ProjectionNorm k_norm;
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
  float qkv_limit = 0.0F;  // elements of q, k and v beyond +-limit are cut; 0: none
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
