#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "kernels/packed_weights.h"
#include "mlx/mlx.h"

namespace espalier::tests {

/// The bytes of what the kernels make of a matrix: its values, products with some numbers of rows,
/// gated and not, and rows of it as a table.
inline std::vector<std::string> linear_results(const kernels::PackedMatrix& matrix,
                                               kernels::ActivationFormat format,
                                               const std::vector<int>& row_counts) {
  std::vector<std::string> results = {bytes_of(kernels::unpack(matrix))};
  for (const int rows : row_counts) {
    const auto x = random_rows(rows, matrix.columns, 40);
    results.push_back(bytes_of(kernels::linear(x, {matrix}, {.activations = format})));
    results.push_back(bytes_of(kernels::linear(
        x, {matrix, matrix}, {.gate = kernels::Gate::silu, .activations = format})));
  }
  const std::int32_t tokens[] = {0, matrix.rows / 3, matrix.rows - 1};
  results.push_back(bytes_of(
      kernels::embedding(mlx::core::array(tokens, {3}), matrix, 1.0F, mlx::core::float32)));
  return results;
}

}  // namespace espalier::tests
