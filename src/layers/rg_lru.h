#pragma once

#include <vector>

#include "layers/recurrent.h"

namespace espalier::layers {

/// Griffin's recurrent part around a real-gated linear recurrent unit (De et al. 2024,
/// section 2.4). All parts between the projections are computed in f32.
struct RgLru {
  Linear in_proj;                     // x, y
  kernels::ElementFunction function;  // of y
  Convolution conv1d;
  std::vector<Linear> gates;   // of each head: input gate, recurrence gate
  mlx::core::array log_decay;  // [C], negative: -8 softplus(recurrent_param)
  Linear out_proj;

  /// norm(x) [T, width] up to `out_proj`, [T, C].
  mlx::core::array mix(const mlx::core::array& x, const Norm* norm,
                       const RecurrentCall& call) const;
  std::size_t bytes() const;
};

}  // namespace espalier::layers
