#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

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

/// Hands out the tiles [0, count) of a parallel loop where neighbouring tiles are better taken by
/// one worker: each begins with a share of its own, which it takes in pieces of half of what is
/// left, and helps the others when that is done. Thread-safe.
class TileShares {
 public:
  TileShares() = default;
  TileShares(std::size_t count, int workers) { reset(count, workers); }

  /// Starts over; call while no worker claims. Takes memory only for another number of workers.
  void reset(std::size_t count, int workers) {
    const auto size = static_cast<std::size_t>(workers);
    if (shares_.size() != size) shares_ = std::vector<Share>(size);
    for (std::size_t i = 0; i < size; ++i) {
      shares_[i].first = count * i / size;
      shares_[i].end = count * (i + 1) / size;
      shares_[i].next.store(shares_[i].first, std::memory_order_relaxed);
    }
  }

  /// Where the worker's own share begins.
  std::size_t first(int worker) const { return shares_[static_cast<std::size_t>(worker)].first; }

  /// Claims the tiles [first, last); false when all are taken.
  bool next(int worker, std::size_t& first, std::size_t& last) {
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      if (shares_[(static_cast<std::size_t>(worker) + i) % shares_.size()].claim(first, last)) {
        return true;
      }
    }
    return false;
  }

 private:
  struct alignas(64) Share {
    std::atomic<std::size_t> next{0};
    std::size_t first = 0;
    std::size_t end = 0;

    bool claim(std::size_t& claimed, std::size_t& last) {
      claimed = next.load(std::memory_order_relaxed);
      while (claimed < end) {
        last = claimed + (end - claimed + 1) / 2;
        if (next.compare_exchange_weak(claimed, last, std::memory_order_relaxed)) return true;
      }
      return false;
    }
  };

  std::vector<Share> shares_;
};

}  // namespace espalier::base
