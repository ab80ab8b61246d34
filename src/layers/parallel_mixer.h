#pragma once

#include <memory>

#include "layers/attention.h"
#include "layers/mamba2.h"

namespace espalier::layers {

/// Attention and Mamba 2 side by side over the same rows (Falcon-H1).
struct ParallelMixer {
  Attention attention;
  Mamba2 mamba;
  float attention_scale;
  float mamba_scale;

  /// norm(x) [T, width] up to the output projections: both results side by side.
  mlx::core::array mix(const mlx::core::array& x, const Norm* norm, kernels::KvLayer& kv,
                       const std::shared_ptr<const AttentionBatch>& batch,
                       const RecurrentCall& call) const;
  /// `residual` joined by both parts of `mixed`.
  mlx::core::array join(const mlx::core::array& residual, const Join& how,
                        const mlx::core::array& mixed) const;
  std::size_t bytes() const { return attention.bytes() + mamba.bytes(); }
};

}  // namespace espalier::layers
