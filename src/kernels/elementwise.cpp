#include "kernels/elementwise.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/element_type.h"
#include "kernels/elementwise_cpu.h"
#include "kernels/primitive.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;

/// Elements that one worker takes at a time: more work than it costs to wake the others.
constexpr int elements_at_once = 16384;

void check(const mx::array& x, const std::optional<mx::array>& factor) {
  if (x.ndim() != 2 ||
      (factor &&
       (factor->ndim() != 2 || factor->shape(0) != x.shape(0) || factor->dtype() != x.dtype() ||
        (factor->shape(1) != x.shape(1) && factor->shape(1) != 1 && x.shape(1) != 1)))) {
    throw std::invalid_argument(
        "[elementwise] expected x [T, N] and a factor [T, N] or [T, 1] of the same type");
  }
}

mx::Shape result_shape(const mx::array& x, const std::optional<mx::array>& factor) {
  return {x.shape(0), factor ? std::max(x.shape(1), factor->shape(1)) : x.shape(1)};
}

struct Elementwise {
  static constexpr const char* name = "espalier::elementwise";

  ElementFunction function;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const mx::array x = row_contiguous(inputs[0]);
    const std::optional<mx::array> factor =
        inputs.size() > 1 ? std::optional(row_contiguous(inputs[1])) : std::nullopt;
    mx::array& out = outputs[0];
    if (out.size() == 0) {
      return;
    }
    const int columns = out.shape(1);
    ElementRows all{.kind = static_cast<ElementKind>(function.kind),
                    .constants = {},
                    .x = nullptr,
                    .factor = nullptr,
                    .out = nullptr,
                    .type = element_type(x.dtype()),
                    .rows = 0,
                    .columns = columns,
                    .x_columns = x.shape(1),
                    .factor_columns = factor ? factor->shape(1) : 0};
    std::copy(std::begin(function.constants), std::end(function.constants), all.constants);
    const int step = std::max(1, elements_at_once / columns);
    base::ThreadPool& pool = base::compute_pool();
    const std::size_t scratch_floats = 2 * (static_cast<std::size_t>(columns) + 16);
    const auto scratch = std::make_unique_for_overwrite<float[]>(scratch_floats * pool.size());
    const auto run = [&](int first, int worker) {
      const auto at = [&](const mx::array& array) {
        return array.data<char>() +
               static_cast<std::size_t>(first) * array.shape(1) * array.itemsize();
      };
      ElementRows rows = all;
      rows.x = at(x);
      rows.factor = factor ? at(*factor) : nullptr;
      rows.out = const_cast<char*>(at(out));
      rows.rows = std::min(step, out.shape(0) - first);
      elementwise_cpu()(rows, scratch.get() + scratch_floats * worker);
    };
    if (out.shape(0) <= step) {
      run(0, 0);
      return;
    }
    base::TileCounter tiles((out.shape(0) + step - 1) / step);
    pool.run([&](int worker) {
      for (std::size_t tile; tiles.next(tile);) {
        run(static_cast<int>(tile) * step, worker);
      }
    });
  }
};

std::vector<mx::array> operands(const mx::array& x, const std::optional<mx::array>& factor) {
  std::vector<mx::array> inputs = {x};
  if (factor) {
    inputs.push_back(*factor);
  }
  return inputs;
}

mx::array scalar(float value) { return mx::array(value); }

mx::array apply_ops(const mx::array& x, const ElementFunction& function) {
  using Kind = ElementFunction::Kind;
  const float* c = function.constants;
  switch (function.kind) {
    case Kind::silu:
      return x * mx::sigmoid(x);
    case Kind::gelu_tanh:
      return scalar(0.5F) * x *
             (scalar(1) + mx::tanh(scalar(0.7978846F) * (x + scalar(0.044715F) * x * x * x)));
    case Kind::gelu_erf:
      return scalar(0.5F) * x * (scalar(1) + mx::erf(x * scalar(0.70710678F)));
    case Kind::gelu_quick:
      return x * mx::sigmoid(scalar(1.702F) * x);
    case Kind::relu:
      return mx::maximum(x, scalar(0));
    case Kind::relu_squared:
      return mx::square(mx::maximum(x, scalar(0)));
    case Kind::sigmoid:
      return mx::sigmoid(x);
    case Kind::tanh:
      return mx::tanh(x);
    case Kind::soft_cap:
      return scalar(c[0]) * mx::tanh(x / scalar(c[0]));
    case Kind::xielu:
      return mx::where(
          mx::greater(x, scalar(0)), scalar(c[0]) * x * x + scalar(c[2]) * x,
          scalar(c[1]) * (mx::expm1(mx::minimum(x, scalar(c[3]))) - x) + scalar(c[2]) * x);
    case Kind::clamped_swish: {
      const mx::array low = mx::minimum(x, scalar(c[1]));
      return low * mx::sigmoid(scalar(c[0]) * low);
    }
  }
  throw std::logic_error("[elementwise_ops] unknown function");
}

}  // namespace

mx::array elementwise(const mx::array& x, const ElementFunction& function,
                      const std::optional<mx::array>& factor) {
  check(x, factor);
  element_type(x.dtype());
  return make_node(Elementwise{function}, result_shape(x, factor), x.dtype(), operands(x, factor));
}

mx::array elementwise_now(const mx::array& x, const ElementFunction& function,
                          const std::optional<mx::array>& factor) {
  check(x, factor);
  return run_now(Elementwise{function}, result_shape(x, factor), x.dtype(), operands(x, factor));
}

mx::array elementwise_ops(const mx::array& x, const ElementFunction& function,
                          const std::optional<mx::array>& factor) {
  check(x, factor);
  mx::array y = apply_ops(mx::astype(x, mx::float32), function);
  if (factor) {
    mx::array u = mx::astype(*factor, mx::float32);
    if (function.kind == ElementFunction::Kind::clamped_swish) {
      u = mx::clip(u, scalar(-function.constants[1]), scalar(function.constants[1])) + scalar(1);
    }
    y = y * u;
  }
  return mx::astype(y, x.dtype());
}

}  // namespace espalier::kernels
