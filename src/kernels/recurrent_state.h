#pragma once

#include <vector>

#include "mlx/mlx.h"

namespace espalier::kernels {

/// The rows of one sequence in a ragged batch, as recurrent kernels see them.
struct RecurrentRows {
  int first_row;  // in [0, T)
  int rows;
  int position;  // of the first row in its sequence; at 0 the state counts as zero
  int slot;      // of the sequence's state
};

using RecurrentBatch = std::vector<RecurrentRows>;

/// What one recurrent layer keeps for each sequence, in f32. A dimension is 0 where a mixer has no
/// such state.
struct RecurrentLayer {
  mlx::core::array convolution;  // [slots, taps - 1, channels]: the rows before the next
  mlx::core::array state;        // [slots, floats]: laid out by the kernel that owns it
};

/// Floats between rows of `columns` floats in a recurrent state, so that vectors have no tail.
constexpr int recurrent_stride(int columns) { return (columns + 15) / 16 * 16; }

}  // namespace espalier::kernels
