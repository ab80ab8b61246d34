#include "base/wake_word.h"

#include <chrono>
#include <climits>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace espalier::base {
namespace {

using Value = WakeWord::Value;

/// Long enough to bridge the serial code between two parallel regions of one token. Beside other
/// programs it is time taken from this one's own share: there 50 µs gave two thirds of the speed.
constexpr auto spin_time = std::chrono::microseconds(20);
/// Pauses between two looks at the clock.
constexpr int pauses_per_look = 32;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins until `word` differs from `old` or the time is up.
void spin(const std::atomic<Value>& word, Value old) {
  const auto deadline = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < pauses_per_look; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
}

#if defined(__linux__)

void sleep_on(std::atomic<Value>& word, Value old) {
  static_assert(sizeof(std::atomic<Value>) == sizeof(Value));
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}

void wake_all(std::atomic<Value>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

#else

void sleep_on(std::atomic<Value>& word, Value old) { word.wait(old, std::memory_order_acquire); }

void wake_all(std::atomic<Value>& word) { word.notify_all(); }

#endif

}  // namespace

void WakeWord::advance() {
  // Sequentially consistent, as in `wait`: either this thread sees the sleeper or the sleeper the
  // new value.
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) wake_all(value_);
}

Value WakeWord::wait(Value old, bool may_spin) {
  if (may_spin) spin(value_, old);
  if (value() != old) return value();
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == old) sleep_on(value_, old);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return value();
}

}  // namespace espalier::base
