#pragma once

#include "layers/linear.h"
#include "layers/norm.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// A learned augmented residual (Gemma 3n): a low-rank part beside a layer's mixer.
struct Laurel {
  Linear input;   // [rank, D]
  Linear output;  // [D, rank]
  Norm norm;      // over D

  /// (stream + y + norm(output(input(y)))) / sqrt(2) for the normed rows y [T, D].
  mlx::core::array operator()(const mlx::core::array& stream, const mlx::core::array& y) const;
};

}  // namespace espalier::layers
