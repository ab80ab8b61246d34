#include "kernels/head_linear.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/element_type.h"
#include "kernels/linear_cpu.h"
#include "kernels/packed_matrix.h"
#include "kernels/primitive.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;

/// Rows that one task takes through a head's matrix.
constexpr int rows_at_once = 64;

/// Inputs: x, then the matrices.
struct HeadLinear {
  static constexpr const char* name = "espalier::head_linear";

  std::vector<BandMatrix> heads;
  int stride;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const mx::array x = row_contiguous(inputs[0]);
    const int rows = x.shape(0);
    if (rows == 0) {
      return;
    }
    const int row_tiles = (rows + rows_at_once - 1) / rows_at_once;
    base::TileCounter tiles(heads.size() * static_cast<std::size_t>(row_tiles));
    base::compute_pool().run([&](int) {
      std::vector<float> values;
      for (std::size_t tile; tiles.next(tile);) {
        const int first = static_cast<int>(tile) % row_tiles * rows_at_once;
        const int count = std::min(rows_at_once, rows - first);
        multiply(x, inputs[1 + tile / row_tiles], static_cast<int>(tile) / row_tiles, first, count,
                 values, outputs[0]);
      }
    });
  }

 private:
  void multiply(const mx::array& x, const mx::array& weight, int head, int first, int rows,
                std::vector<float>& values, mx::array& output) const {
    const BandMatrix& matrix = heads[head];
    const LinearCpu& cpu = linear_cpu();
    const ElementType type = element_type(x.dtype());
    values.resize(static_cast<std::size_t>(rows) * matrix.columns);
    for (int row = 0; row < rows; ++row) {
      const auto offset = static_cast<std::size_t>(first + row) * x.shape(1) + head * stride;
      cpu.convert_row({.data = x.data<char>() + offset * x.itemsize(),
                       .type = type,
                       .columns = matrix.columns,
                       .norm_weight = nullptr,
                       .norm_eps = 0.0F},
                      values.data() + static_cast<std::size_t>(row) * matrix.columns);
    }
    alignas(64) float sums[rows_at_once * band_rows];
    for (int band = 0; band < matrix.bands(); ++band) {
      cpu.format(matrix.type)
          .multiply_f32(matrix.shape(), matrix.band(weight, band), values.data(), rows, sums);
      const auto offset =
          static_cast<std::size_t>(first) * output.shape(1) + head * matrix.rows + band * band_rows;
      OutputTile tile{};
      tile.sums = sums;
      tile.output = output.data<char>() + offset * output.itemsize();
      tile.stride = output.shape(1);
      tile.rows = rows;
      tile.lanes = matrix.rows_of(band);
      tile.residual_type = type;
      tile.output_type = type;
      cpu.finish(tile);
    }
  }
};

int check(const mx::array& x, int stride, const std::vector<PackedMatrix>& heads) {
  const bool fits =
      x.ndim() == 2 && !heads.empty() &&
      std::ranges::all_of(heads,
                          [&](const PackedMatrix& head) {
                            return head.rows == heads[0].rows && head.columns == heads[0].columns;
                          }) &&
      static_cast<int>(heads.size() - 1) * stride + heads[0].columns <= x.shape(1);
  if (!fits) {
    throw std::invalid_argument("[head_linear] expected x [T, columns] and equal matrices within");
  }
  return static_cast<int>(heads.size()) * heads[0].rows;
}

}  // namespace

mx::array head_linear(const mx::array& x, int stride, const std::vector<PackedMatrix>& heads) {
  const int outputs = check(x, stride, heads);
  HeadLinear work{.heads = {}, .stride = stride};
  std::vector<mx::array> inputs = {x};
  for (const PackedMatrix& head : heads) {
    work.heads.emplace_back(head);
    inputs.push_back(head.data);
  }
  return make_node(std::move(work), mx::Shape{x.shape(0), outputs}, x.dtype(), std::move(inputs));
}

mx::array head_linear_ops(const mx::array& x, int stride, const std::vector<PackedMatrix>& heads) {
  check(x, stride, heads);
  std::vector<mx::array> results;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const int first = static_cast<int>(i) * stride;
    const mx::array part = mx::slice(x, {0, first}, {x.shape(0), first + heads[i].columns});
    results.push_back(mx::matmul(mx::astype(part, mx::float32), mx::transpose(unpack(heads[i]))));
  }
  return mx::astype(mx::concatenate(results, 1), x.dtype());
}

}  // namespace espalier::kernels
