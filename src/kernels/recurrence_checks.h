#pragma once

#include "kernels/recurrence.h"

namespace espalier::kernels {

// Throw `std::invalid_argument` where shapes, types and batch disagree, so that neither form of a
// kernel reads or writes outside its arrays.

void check_convolution(const mlx::core::array& x, const mlx::core::array& state,
                       const RecurrentBatch& batch, const Convolution& convolution);
void check_selective(const SelectiveInputs& inputs, const mlx::core::array& state,
                     const RecurrentBatch& batch, const SelectiveWeights& weights);
void check_gated(const mlx::core::array& decay, const mlx::core::array& x,
                 const mlx::core::array& state, const RecurrentBatch& batch);
void check_linear_recurrence(const LinearRecurrenceInputs& inputs, const mlx::core::array& state,
                             const RecurrentBatch& batch);

}  // namespace espalier::kernels
