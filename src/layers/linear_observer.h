#pragma once

#include <string>
#include <vector>

#include "kernels/linear.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// Sees the inputs of linear maps while models are loaded and run on this thread; for calibration.
class LinearObserver {
 public:
  /// Becomes this thread's observer until it is destroyed. There can be one at a time.
  LinearObserver();
  virtual ~LinearObserver();
  LinearObserver(const LinearObserver&) = delete;
  LinearObserver& operator=(const LinearObserver&) = delete;

  /// Null where there is none.
  static LinearObserver* current();

  /// `matrix` was read from the tensor of this name, or from rows of it.
  virtual void loaded(const std::string& tensor, const kernels::PackedMatrix& matrix) = 0;
  /// The matrices are about to be multiplied by `inputs` [T, K], behind the norm; unevaluated.
  virtual void multiplied(const std::vector<kernels::PackedMatrix>& matrices,
                          const mlx::core::array& inputs) = 0;
};

}  // namespace espalier::layers
