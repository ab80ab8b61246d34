#pragma once

#include <vector>

#include "kernels/elementwise.h"
#include "layers/linear.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// Makes a vector of P elements for each token and layer (Gemma 3n): half from a table, half from
/// the embedded token.
struct LayerInputs {
  kernels::PackedMatrix embedding;  // [V, layers * P]
  Linear projection;                // [layers * P, D]
  Norm norm;                        // over P
  int size;                         // P
  int vocabulary = 0;               // tokens from here on take the first's row; 0: none

  /// For `tokens` int32 [T] and their embeddings x [T, D]: a list of [T, P], one a layer.
  std::vector<mlx::core::array> operator()(const mlx::core::array& tokens,
                                           const mlx::core::array& x) const;
};

/// How a layer takes its vector in.
struct LayerInputGate {
  Linear gate;    // [P, D]
  Linear output;  // [D, P]
  Norm norm;      // over D
  kernels::ElementFunction activation;

  /// x + norm((activation(gate(x)) * vector) output), [T, D].
  mlx::core::array operator()(const mlx::core::array& x, const mlx::core::array& vector) const;
  /// What is added there.
  mlx::core::array part(const mlx::core::array& x, const mlx::core::array& vector) const;
};

}  // namespace espalier::layers
