#include "kernels/norm.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/element_type.h"
#include "kernels/norm_cpu.h"
#include "kernels/primitive.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;

/// Elements that one worker normalizes at a time: some 10 microseconds' work, more than it costs to
/// wake the others.
constexpr int norm_elements_at_once = 32768;

void check_norm(const mx::array& x, const RmsNorm& norm, const std::optional<mx::array>& residual) {
  if (x.ndim() != 2 ||
      (x.dtype() != mx::float32 && x.dtype() != mx::float16 && x.dtype() != mx::bfloat16)) {
    throw std::invalid_argument("[rms_norm] expected x as f32, f16 or bf16 [T, D]");
  }
  if (norm.weight.dtype() != mx::float32 || norm.weight.shape() != mx::Shape{x.shape(1)}) {
    throw std::invalid_argument("[rms_norm] expected the weight as f32 [D]");
  }
  if (residual && (residual->shape() != x.shape() || residual->dtype() != x.dtype())) {
    throw std::invalid_argument("[rms_norm] expected a residual of the shape and type of x");
  }
}

struct Norm {
  static constexpr const char* name = "RmsNormRows";

  float eps;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const mx::array x = row_contiguous(inputs[0]);
    const mx::array weight = row_contiguous(inputs[1]);
    const bool adds = inputs.size() > 2;
    const mx::array residual = adds ? row_contiguous(inputs[2]) : x;
    const int rows = x.shape(0);
    const int columns = x.shape(1);
    if (x.size() == 0) {
      return;
    }
    const int step = std::max(1, norm_elements_at_once / columns);
    base::ThreadPool& pool = base::compute_pool();
    const std::size_t scratch_floats = columns + 16;
    const auto scratch = std::make_unique_for_overwrite<float[]>(scratch_floats * pool.size());
    const auto normalize = [&](int first, int worker) {
      const std::size_t offset = static_cast<std::size_t>(first) * columns * x.itemsize();
      norm_cpu()({.x = x.data<char>() + offset,
                  .residual = adds ? residual.data<char>() + offset : nullptr,
                  .out = outputs[0].data<char>() + offset,
                  .type = element_type(x.dtype()),
                  .weight = weight.data<float>(),
                  .rows = std::min(step, rows - first),
                  .columns = columns,
                  .eps = eps},
                 scratch.get() + scratch_floats * worker);
    };
    if (rows <= step) {
      normalize(0, 0);
      return;
    }
    base::TileCounter tiles((rows + step - 1) / step);
    pool.run([&](int worker) {
      for (std::size_t tile; tiles.next(tile);) {
        normalize(static_cast<int>(tile) * step, worker);
      }
    });
  }
};

}  // namespace

mx::array rms_norm(const mx::array& x, const RmsNorm& norm,
                   const std::optional<mx::array>& residual) {
  check_norm(x, norm, residual);
  std::vector<mx::array> inputs = {x, norm.weight};
  if (residual) {
    inputs.push_back(*residual);
  }
  return make_node(Norm{norm.eps}, x.shape(), x.dtype(), std::move(inputs));
}

mx::array rms_norm_ops(const mx::array& x, const RmsNorm& norm,
                       const std::optional<mx::array>& residual) {
  check_norm(x, norm, residual);
  const auto values = mx::astype(x, mx::float32);
  const auto mean = mx::mean(mx::square(values), -1, true);
  auto y =
      mx::multiply(mx::divide(values, mx::sqrt(mx::add(mean, mx::array(norm.eps)))), norm.weight);
  if (residual) {
    y = mx::add(y, mx::astype(*residual, mx::float32));
  }
  return mx::astype(y, x.dtype());
}

}  // namespace espalier::kernels
