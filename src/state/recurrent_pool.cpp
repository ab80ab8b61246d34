#include "state/recurrent_pool.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "state/reserved_memory.h"

namespace espalier::state {
namespace {

namespace mx = mlx::core;

int convolution_rows(const RecurrentLayerShape& shape) { return std::max(0, shape.taps - 1); }

void copy_slot(mx::array& array, int from, int to) {
  const std::size_t bytes = array.nbytes() / static_cast<std::size_t>(array.shape(0));
  auto* data = array.data<std::byte>();
  std::memcpy(data + bytes * static_cast<std::size_t>(to),
              data + bytes * static_cast<std::size_t>(from), bytes);
}

}  // namespace

RecurrentPool::RecurrentPool(const std::vector<RecurrentLayerShape>& layers, int slots)
    : slots_(layers.empty() ? 0 : slots) {
  for (const RecurrentLayerShape& shape : layers) {
    layers_.push_back({.convolution = reserve_memory(
                           {slots, convolution_rows(shape), shape.channels}, mx::float32),
                       .state = reserve_memory({slots, shape.floats}, mx::float32)});
  }
  for (int slot = slots_ - 1; slot >= 0; --slot) {
    free_.push_back(slot);
  }
}

std::size_t RecurrentPool::bytes_per_sequence(const std::vector<RecurrentLayerShape>& layers) {
  std::size_t floats = 0;
  for (const RecurrentLayerShape& shape : layers) {
    floats += static_cast<std::size_t>(convolution_rows(shape)) * shape.channels + shape.floats;
  }
  return floats * sizeof(float);
}

int RecurrentPool::allocate() {
  if (free_.empty()) {
    throw std::logic_error("[RecurrentPool::allocate] expected a free slot, none is left");
  }
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

void RecurrentPool::release(int slot) { free_.push_back(slot); }

void RecurrentPool::copy(int from, int to) {
  for (kernels::RecurrentLayer& layer : layers_) {
    mx::eval({layer.convolution, layer.state});
    copy_slot(layer.convolution, from, to);
    copy_slot(layer.state, from, to);
  }
}

}  // namespace espalier::state
