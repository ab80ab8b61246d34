#pragma once

// Replaces the operators new and delete of the whole program: include it in one file only.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <string>

namespace espalier::tests {

/// Bytes of the largest request to the allocator since this was set to zero.
inline std::atomic<std::size_t> largest_request = 0;

/// What a file may ask for beside its own size.
inline constexpr std::size_t memory_allowance = 64'000'000;

/// How many damaged files each test opens: 200, or what `ESPALIER_DAMAGED_FILES` says.
inline int damaged_variants() {
  const char* wanted = std::getenv("ESPALIER_DAMAGED_FILES");
  return wanted == nullptr ? 200 : std::atoi(wanted);
}

/// A place to damage: near the start, near the end, or anywhere. Most of a header is vocabulary,
/// where damage does not show.
inline std::size_t damaged_place(std::size_t size, std::mt19937_64& random) {
  const std::size_t near = std::min<std::size_t>(size, 16384);
  switch (random() % 3) {
    case 0:
      return random() % std::min<std::size_t>(size, 1024);
    case 1:
      return size - 1 - random() % near;
    default:
      return random() % size;
  }
}

/// Flips 1 to 4 bits.
inline void flip_bits(std::string& bytes, std::mt19937_64& random) {
  for (std::uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
    bytes[damaged_place(bytes.size(), random)] ^= static_cast<char>(1U << (random() % 8));
  }
}

inline void* counted_allocation(std::size_t size) {
  std::size_t largest = largest_request;
  while (size > largest && !largest_request.compare_exchange_weak(largest, size)) {
  }
  return std::malloc(std::max<std::size_t>(size, 1));
}

}  // namespace espalier::tests

// NOLINTBEGIN(misc-definitions-in-headers): one file of each program includes them.
void* operator new(std::size_t size) {
  void* memory = espalier::tests::counted_allocation(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return espalier::tests::counted_allocation(size);
}

// GCC takes an inlined one for a mismatch.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
// NOLINTEND(misc-definitions-in-headers)
