#include "state/reserved_memory.h"

#include <cstdint>
#include <utility>

namespace espalier::state {

namespace mx = mlx::core;

mx::array reserve_memory(mx::Shape shape, mx::Dtype dtype) {
  // So that a KV block's rows do not straddle cache lines.
  constexpr std::size_t alignment = 64;
  mx::array array(std::move(shape), dtype, nullptr, {});
  auto data = mx::allocator::malloc(array.nbytes() + alignment);
  const auto address = reinterpret_cast<std::uintptr_t>(data.buffer().raw_ptr());
  const auto offset = static_cast<std::int64_t>((alignment - address % alignment) % alignment);
  const auto strides = array.strides();
  const std::size_t size = array.size();
  array.set_data(std::move(data), size, strides,
                 {.contiguous = true, .row_contiguous = true, .col_contiguous = false}, offset);
  array.set_status(mx::array::Status::available);
  return array;
}

}  // namespace espalier::state
