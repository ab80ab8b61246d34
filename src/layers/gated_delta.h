#pragma once

#include "layers/recurrent.h"

namespace espalier::layers {

/// Gated DeltaNet (Yang, Kautz & Hatamizadeh 2024). All parts between the projections are computed
/// in f32.
struct GatedDelta {
  int key_heads;    // Hk
  int key_dim;      // K
  int value_heads;  // H
  int value_dim;    // V
  /// q, k, v, gate, rate, decay; or, `by_key_head`, each key head's q, k, v and gate, then each key
  /// head's rate and decay.
  Linear in_proj;
  bool by_key_head;
  Convolution conv1d;        // over q, k, v
  mlx::core::array dt_bias;  // [H]
  mlx::core::array a;        // [H], negative
  float rate_scale;
  kernels::RmsNorm norm;  // over V
  Linear out_proj;

  /// norm(x) [T, width] up to `out_proj`, [T, H V].
  mlx::core::array mix(const mlx::core::array& x, const Norm* norm,
                       const RecurrentCall& call) const;
  std::size_t bytes() const;
};

/// Rows of x [T, heads * dim] as [T, heads, dim], each head divided by its length and multiplied by
/// `scale`.
mlx::core::array unit_heads(const mlx::core::array& x, int dim, float scale);

}  // namespace espalier::layers
