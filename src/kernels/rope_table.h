#pragma once

#include <memory>

#include "kernels/attention.h"
#include "mlx/mlx.h"

namespace espalier::kernels {

/// What rotates each row of a batch: [T, 2, dims] in f32, cosines first, then sines, times the
/// magnitude, one for each element of a head as its pairs lie; sines of the first of a pair are
/// negated, so that x' = x cos + partner sin for either. Angles are taken in f64: at position
/// 131,072 an f32 angle would be off by up to 0.004. The layers of one step share one table: the
/// last batch's are kept for the calling thread.
mlx::core::array rope_table(const std::shared_ptr<const AttentionBatch>& batch, const Rope& rope);

}  // namespace espalier::kernels
