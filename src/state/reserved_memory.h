#pragma once

#include "mlx/mlx.h"

namespace espalier::state {

/// An array over fresh memory that nobody has touched yet, at a 64-byte boundary: a large
/// allocation is a mapping of its own, whose pages become resident only when written.
mlx::core::array reserve_memory(mlx::core::Shape shape, mlx::core::Dtype dtype);

}  // namespace espalier::state
