#pragma once

#include <optional>

#include "kernels/attention.h"
#include "mlx/mlx.h"

namespace espalier::kernels {

struct BidirectionalAttentionOptions {
  int heads;     // H
  int kv_heads;  // Hk, divides H
  int head_dim;  // D
  float scale;
  int reach = 0;                                 // 0: all; else row i sees rows j, |i - j| <= reach
  std::optional<RmsNorm> q_norm = std::nullopt;  // over D, before RoPE
  std::optional<RmsNorm> k_norm = std::nullopt;
  std::optional<Rope> rope = std::nullopt;
};

/// Attention of every row of `qkv` [T, (H + 2 Hk) D] to all rows of its own sequence, before and
/// after it; gives [T, H D] in qkv's dtype. Sequences are whole: positions count from 0, and
/// nothing is kept. A sequence's bits depend on it alone, since each is computed by itself.
/// Computed in f32 by plain MLX operations, which an encoder's few rows allow.
mlx::core::array bidirectional_attention(const mlx::core::array& qkv, const AttentionBatch& batch,
                                         const BidirectionalAttentionOptions& options);

}  // namespace espalier::kernels
