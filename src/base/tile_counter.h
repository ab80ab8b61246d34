#pragma once

#include <atomic>
#include <cstddef>

namespace espalier::base {

/// Hands out the tiles [0, count) of a parallel loop one by one, so that a slow core takes fewer.
/// Thread-safe; lies alone in its cache line.
class alignas(64) TileCounter {
 public:
  explicit TileCounter(std::size_t count) : count_(count) {}

  /// Claims the next tile; false when all are taken.
  bool next(std::size_t& tile) {
    tile = next_.fetch_add(1, std::memory_order_relaxed);
    return tile < count_;
  }

  /// Starts over; call while no worker claims, for example by one worker between two barriers.
  void reset(std::size_t count) {
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::size_t> next_{0};
  std::size_t count_;
};

}  // namespace espalier::base
