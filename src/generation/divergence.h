#pragma once

#include <vector>

#include <mlx/array.h>

namespace espalier::generation {

/// Kullback-Leibler divergence of softmax(b) from softmax(a), in nats, row by row. Both are
/// evaluated, row-contiguous float32 [R, V].
std::vector<double> divergences(const mlx::core::array& a, const mlx::core::array& b);

}  // namespace espalier::generation
