#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/primitive.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// One row of an input, in f32.
using RowView = std::span<const float>;

/// The node of a function of rows: `function(rows, out)` gets the same row of every input [T, N]
/// and fills that of the output. Inputs and output are f32, f16 or bf16, computed in f32.
template <class Function>
struct RowWork {
  static constexpr const char* name = "espalier::rows";

  Function function;

  void operator()(const std::vector<mlx::core::array>& inputs,
                  std::vector<mlx::core::array>& outputs) const {
    std::vector<mlx::core::array> rows;
    for (const mlx::core::array& input : inputs) {
      rows.push_back(kernels::row_contiguous(input));
    }
    mlx::core::array& output = outputs[0];
    std::vector<std::vector<float>> values(rows.size());
    std::vector<float> result(static_cast<std::size_t>(output.shape(1)));
    for (int row = 0; row < output.shape(0); ++row) {
      std::vector<RowView> views;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        values[i].resize(static_cast<std::size_t>(rows[i].shape(1)));
        with_row(rows[i], row, [&](const auto* from) {
          std::transform(from, from + values[i].size(), values[i].begin(),
                         [](auto value) { return static_cast<float>(value); });
        });
        views.emplace_back(values[i]);
      }
      function(views, result);
      with_row(output, row, [&]<class T>(T* to) {
        std::ranges::transform(result, to, [](float value) { return static_cast<T>(value); });
      });
    }
  }

 private:
  /// Calls `use` with a pointer to the row's first element.
  template <class Use>
  static void with_row(mlx::core::array& array, int row, const Use& use) {
    const auto first = static_cast<std::ptrdiff_t>(row) * array.shape(1);
    if (array.dtype() == mlx::core::float32) {
      use(array.data<float>() + first);
    } else if (array.dtype() == mlx::core::float16) {
      use(array.data<mlx::core::float16_t>() + first);
    } else if (array.dtype() == mlx::core::bfloat16) {
      use(array.data<mlx::core::bfloat16_t>() + first);
    } else {
      throw std::invalid_argument("[rows] expected f32, f16 or bf16");
    }
  }
};

/// The output of such a node, [T, N].
template <class Function>
mlx::core::array by_rows(Function function, mlx::core::Shape shape, mlx::core::Dtype dtype,
                         std::vector<mlx::core::array> inputs) {
  return kernels::make_node(RowWork<Function>{std::move(function)}, std::move(shape), dtype,
                            std::move(inputs));
}

}  // namespace espalier::layers
