#pragma once

#include "layers/recurrent.h"

namespace espalier::layers {

/// Kimi delta attention: a gated delta rule whose state decays at another rate for each key
/// channel. All parts between the projections are computed in f32.
struct KimiDelta {
  int heads;                 // H
  int head_dim;              // D, of keys and values
  Linear in_proj;            // q, k, v, rate, and the decay's and gate's low-rank parts
  Convolution conv1d;        // over q, k, v
  Linear f_b_proj;           // decay
  Linear g_b_proj;           // gate
  mlx::core::array dt_bias;  // [H D]
  mlx::core::array a;        // [H, 1], negative
  kernels::RmsNorm o_norm;   // over D
  Linear out_proj;

  /// norm(x) [T, width] up to `out_proj`, [T, H D].
  mlx::core::array mix(const mlx::core::array& x, const Norm* norm,
                       const RecurrentCall& call) const;
  std::size_t bytes() const;
};

}  // namespace espalier::layers
