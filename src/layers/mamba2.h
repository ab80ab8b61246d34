#pragma once

#include <optional>

#include "layers/recurrent.h"

namespace espalier::layers {

/// Mamba 2 (Dao & Gu 2024): a gated convolution and a linear recurrence with one decay a head. All
/// parts between the projections are computed in f32.
struct Mamba2 {
  struct OutputNorm {
    mlx::core::array weight;  // [H P]
    float eps;
    int groups;
    bool before_gate;
  };

  int heads;                                     // H
  int head_dim;                                  // P
  int groups;                                    // of heads that share B and C
  int states;                                    // N
  Linear in_proj;                                // gate, x, B, C, time step
  std::optional<mlx::core::array> input_scales;  // of in_proj's outputs
  Convolution conv1d;                            // over x, B, C
  Linear out_proj;
  mlx::core::array dt_bias;  // [H]
  mlx::core::array a;        // [H], negative
  mlx::core::array skip;     // [H, 1]
  float least_step;
  float most_step;
  std::optional<OutputNorm> output_norm;

  /// norm(x) [T, width] up to `out_proj`, [T, H P].
  mlx::core::array mix(const mlx::core::array& x, const Norm* norm,
                       const RecurrentCall& call) const;
  std::size_t bytes() const;
};

}  // namespace espalier::layers
