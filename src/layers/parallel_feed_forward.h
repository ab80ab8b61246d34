#pragma once

#include <cstddef>

#include "layers/experts.h"
#include "layers/mlp.h"
#include "layers/norm.h"

namespace espalier::layers {

/// An MLP and a mixture of experts side by side (Gemma 4): each reads the stream through a norm,
/// as the router does, and their normalized results are added.
struct ParallelFeedForward {
  Mlp mlp;
  Norm mlp_post_norm;
  Norm experts_norm;
  Norm router_norm;
  Experts experts;
  Norm experts_post_norm;

  /// The stream x [T, D] to the part's result [T, D]; `norm` is the MLP's.
  mlx::core::array operator()(const mlx::core::array& x, const Norm* norm) const;
  std::size_t bytes() const;
};

}  // namespace espalier::layers
