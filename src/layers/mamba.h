#pragma once

#include <optional>

#include "layers/recurrent.h"

namespace espalier::layers {

/// Mamba (Gu & Dao 2023): a gated convolution and selective scan. All parts between the projections
/// are computed in f32.
struct Mamba {
  /// Over time step, B and C.
  struct ParameterNorms {
    kernels::RmsNorm time_step;
    kernels::RmsNorm b;
    kernels::RmsNorm c;
  };

  Linear in_proj;  // x, gate
  Convolution conv1d;
  Linear x_proj;  // time step, B, C
  Linear dt_proj;
  Linear out_proj;
  kernels::SelectiveWeights scan;
  std::optional<ParameterNorms> parameter_norms = {};

  /// norm(x) [T, width] up to `out_proj`, [T, C].
  mlx::core::array mix(const mlx::core::array& x, const Norm* norm,
                       const RecurrentCall& call) const;
  std::size_t bytes() const;
};

}  // namespace espalier::layers
