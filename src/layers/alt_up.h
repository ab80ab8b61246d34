#pragma once

#include <optional>
#include <vector>

#include "layers/linear.h"
#include "layers/norm.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// Several residual streams side by side, [T, streams * D], of which a layer reads and writes one
/// (alternating updates, Baykal et al. 2023, as Gemma 3n has them). Numbers that say how streams
/// mix come from the active one: tanh(router(norm(x))).
struct AltUp {
  Norm router_norm;   // divides by D besides
  Linear router;      // [streams, D]
  Linear prediction;  // [streams * streams, streams]
  Linear correction;  // [streams, streams]
  int streams;
  int active;
  std::optional<mlx::core::array> output_scale = {};  // [D], f32

  /// Each stream plus a weighted sum of all, [T, streams * D].
  mlx::core::array predict(const mlx::core::array& x) const;
  /// The active stream of x, [T, D].
  mlx::core::array read(const mlx::core::array& x) const;
  /// `predicted` with what the layer changed in its stream, `active` [T, D], weighed for each
  /// stream, [T, streams * D].
  mlx::core::array correct(const mlx::core::array& predicted, const mlx::core::array& active) const;
  /// The active stream of x times the scale, [T, D].
  mlx::core::array scaled(const mlx::core::array& x) const;
  /// x [T, streams * D] with `part` [T, D] added to every stream but the first.
  mlx::core::array add_to_others(const mlx::core::array& x, const mlx::core::array& part) const;

 private:
  mlx::core::array route(const mlx::core::array& active) const;
};

/// Makes the streams of the embedded tokens, and one of them in the end. What comes from a matrix
/// gets the size of the first stream's row.
struct StreamSpread {
  std::vector<Linear> spread;  // [D, D], of each stream but the first
  std::vector<Linear> merge;

  /// x [T, D] gives [T, streams * D].
  mlx::core::array operator()(const mlx::core::array& x) const;
  /// The mean of the streams, [T, D].
  mlx::core::array merged(const mlx::core::array& x) const;
};

}  // namespace espalier::layers
