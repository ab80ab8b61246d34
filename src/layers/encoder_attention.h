#pragma once

#include <memory>

#include "kernels/bidirectional_attention.h"
#include "layers/linear.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// Attention of an encoder: every row sees its whole sequence, and nothing is kept.
struct EncoderAttention {
  Linear qkv_proj;  // outputs (H + 2 Hk) D: q, k, v side by side
  Linear o_proj;
  kernels::BidirectionalAttentionOptions options;

  /// norm(x) [T, width] to the attended values [T, H D], before `o_proj`.
  mlx::core::array attend(const mlx::core::array& x, const Norm* norm,
                          const kernels::AttentionBatch& batch) const;
  std::size_t bytes() const { return qkv_proj.bytes() + o_proj.bytes(); }
};

}  // namespace espalier::layers
