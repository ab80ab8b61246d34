#pragma once

#include <atomic>
#include <cstdint>

namespace espalier::base {

/// A number that only grows, for whose growth threads wait: spinning first, then asleep. Lies alone
/// in its cache line. Thread-safe.
///
/// Not `std::atomic::wait`: that one yields before it sleeps, and under foreign load Linux lets a
/// thread that yields wait for a whole turn of the others.
class alignas(64) WakeWord {
 public:
  using Value = std::uint32_t;

  Value value() const { return value_.load(std::memory_order_acquire); }

  /// Adds one and wakes whoever waits. What happened before is visible to who sees it.
  void advance();

  /// Waits until the value differs from `old` and returns it. With `may_spin` false it sleeps at
  /// once.
  Value wait(Value old, bool may_spin);

 private:
  std::atomic<Value> value_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace espalier::base
