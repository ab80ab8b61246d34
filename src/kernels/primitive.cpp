#include "kernels/primitive.h"

#include <algorithm>
#include <cstring>

namespace espalier::kernels {

namespace mx = mlx::core;

bool can_run_now(const std::vector<mx::array>& inputs) {
  return std::ranges::all_of(
      inputs, [](const mx::array& input) { return input.is_available() && !input.is_tracer(); });
}

mx::array row_contiguous(const mx::array& array) {
  if (array.flags().row_contiguous) {
    return array;
  }
  const std::size_t item = array.itemsize();
  auto data = mx::allocator::malloc(array.nbytes());
  auto* target = static_cast<char*>(data.buffer().raw_ptr());
  const char* source = array.data<char>();
  const int dimensions = static_cast<int>(array.ndim());
  std::vector<int> index(dimensions, 0);
  for (std::size_t element = 0; element < array.size(); ++element) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < dimensions; ++axis) {
      offset += index[axis] * array.strides(axis);
    }
    std::memcpy(target + element * item, source + offset * static_cast<std::int64_t>(item), item);
    for (int axis = dimensions - 1; axis >= 0 && ++index[axis] == array.shape(axis); --axis) {
      index[axis] = 0;
    }
  }
  return mx::array(std::move(data), array.shape(), array.dtype());
}

}  // namespace espalier::kernels
