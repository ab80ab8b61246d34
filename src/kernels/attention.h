#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/kv_block.h"
#include "kernels/linear.h"
#include "mlx/mlx.h"

namespace espalier::kernels {

/// The rows of one sequence in a ragged batch.
struct AttentionRows {
  int first_row;  // in [0, T)
  int rows;
  int position;  // of the first row in its sequence; keys [0, position) are in the pool already
  std::vector<int> block_table;  // pool block of each kv_block_tokens tokens, covering all rows
};

using AttentionBatch = std::vector<AttentionRows>;

/// Rotary embedding of the first `dims` elements of each head.
struct Rope {
  int dims;
  bool interleaved;           // pairs (2i, 2i+1) instead of (i, i + dims/2)
  mlx::core::array inv_freq;  // [dims/2], f32: angle = position * inv_freq
  float magnitude = 1.0F;     // factor on cos and sin (YaRN, LongRoPE)
};

struct AttentionOptions {
  int heads;     // H
  int kv_heads;  // Hk, divides H
  int head_dim;  // D, of queries and keys
  float scale;
  int value_dim = 0;     // Dv; 0: D
  int window = 0;        // 0: full; else a query at p sees keys (p - window, p]
  int chunk = 0;         // 0: none; else a query at p sees keys from p / chunk * chunk on
  float softcap = 0.0F;  // 0: none
  std::optional<RmsNorm> q_norm = std::nullopt;  // over D
  std::optional<RmsNorm> k_norm = std::nullopt;
  std::optional<RmsNorm> v_norm = std::nullopt;  // over Dv
  std::optional<Rope> rope = std::nullopt;
  bool norm_after_rope = false;  // q and k norm follow RoPE instead of preceding it
  /// f32 [H]: a score of each head that takes part in the softmax without a value.
  std::optional<mlx::core::array> sinks = std::nullopt;
  /// f32 [H]: the score of a key n positions back falls by n times this (ALiBi).
  std::optional<mlx::core::array> alibi_slopes = std::nullopt;
  /// f32 [T]: a factor on each row's queries.
  std::optional<mlx::core::array> query_factors = std::nullopt;
  /// There are no values of their own: they are the Dv elements of each key after the rotated ones
  /// (latent attention). Needs one kv head and `rope`.
  bool values_in_keys = false;
  /// The pool holds the rows' keys and values already, since another layer wrote them: `qkv` has
  /// the queries alone, [T, H D].
  bool shared_kv = false;

  int values() const { return value_dim > 0 ? value_dim : head_dim; }
};

/// The keys and values of one layer, both in one of f16, bf16 and f32. Keys lie transposed inside a
/// KV block, so that a vector register holds one element of neighbouring keys and a score needs no
/// horizontal sum.
struct KvLayer {
  mlx::core::array keys;    // [blocks, Hk, D, kv_block_tokens]
  mlx::core::array values;  // [blocks, Hk, kv_block_tokens, Dv]; Dv = 0 for `values_in_keys`
};

/// Normalizes and rotates q and k of `qkv` [T, (H + Hk) D + Hk Dv] (without the last part for
/// `values_in_keys`), writes k and v into the pool in place, attends causally over each row's own
/// sequence, and returns [T, H Dv] in qkv's dtype.
/// `layer` is replaced by the updated pool, which shares its buffers (a pool with other owners is
/// an internal error, since it would be copied). Row-invariant: keys are taken in fixed-size chunks
/// from position 0, each with its own maximum and sum in f32, merged in order.
mlx::core::array attention(const mlx::core::array& qkv, KvLayer& layer,
                           const std::shared_ptr<const AttentionBatch>& batch,
                           const AttentionOptions& options);
mlx::core::array attention_ops(const mlx::core::array& qkv, KvLayer& layer,
                               const std::shared_ptr<const AttentionBatch>& batch,
                               const AttentionOptions& options);

}  // namespace espalier::kernels
