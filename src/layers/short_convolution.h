#pragma once

#include "layers/recurrent.h"

namespace espalier::layers {

/// LFM2's doubly gated short convolution: C * conv(B * x).
struct ShortConvolution {
  Linear in_proj;  // B, C, x
  Convolution conv;
  Linear out_proj;

  /// norm(x) [T, width] up to `out_proj`, [T, C].
  mlx::core::array mix(const mlx::core::array& x, const Norm* norm,
                       const RecurrentCall& call) const;
  std::size_t bytes() const;
};

}  // namespace espalier::layers
