#pragma once

#include "layers/recurrent.h"

namespace espalier::layers {

/// Lightning attention (MiniMax-01): linear attention over activated q, k and v with one fixed
/// decay a head. All parts between the projections are computed in f32.
struct LightningAttention {
  int heads;                          // H
  int head_dim;                       // D
  Linear in_proj;                     // q, k and v of each head; then the gate
  kernels::ElementFunction function;  // of q, k and v
  mlx::core::array decay;             // [1, H], factors
  kernels::RmsNorm norm;              // over H D
  Linear out_proj;

  /// norm(x) [T, width] up to `out_proj`, [T, H D].
  mlx::core::array mix(const mlx::core::array& x, const Norm* norm,
                       const RecurrentCall& call) const;
  std::size_t bytes() const;
};

}  // namespace espalier::layers
