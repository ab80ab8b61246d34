// What the machine allows: bytes read from memory and int8 multiply-adds in registers, by one
// thread and by as many as are named. Prints one JSON object. Run it on a quiet machine.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;

/// Far beyond any cache that a thread has for itself.
constexpr std::size_t bytes_per_thread = std::size_t{192} << 20;
constexpr long dot_rounds = 20'000'000;
constexpr int repetitions = 5;

/// Operations per second, the best of several runs: a limit is what can be had at most. Each of
/// `threads` threads calls `work(thread)`, which does `operations`.
double best_rate(int threads, double operations, const std::function<void(int)>& work) {
  double best = 0;
  for (int i = 0; i < repetitions; ++i) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> running;
    for (int thread = 0; thread < threads; ++thread) {
      running.emplace_back([&, thread] {
        ++ready;
        while (!go) std::this_thread::yield();
        work(thread);
      });
    }
    while (ready < threads) std::this_thread::yield();
    const auto start = Clock::now();
    go = true;
    for (std::thread& thread : running) thread.join();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, threads * operations / seconds);
  }
  return best;
}

/// Keeps the compiler from dropping what led to a value.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "m"(value) : "memory");
}

std::uint64_t sum_plain(const std::uint64_t* data, std::size_t count) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i < count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += data[i + lane];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

struct DotLimit {
  const char* instructions;
  double operations;  // multiplications and additions of one round
  void (*run)(long rounds);
};

void dot_plain(long rounds) {
  std::int32_t sums[16] = {};
  std::int32_t factor = 3;
  for (long i = 0; i < rounds; ++i) {
    keep(factor);
    for (int lane = 0; lane < 16; ++lane) sums[lane] += factor * lane;
  }
  keep(sums);
}

#if defined(__x86_64__)

constexpr int chains = 8;  // independent sums, enough to hide the latency of any of these

__attribute__((target("avx2"), always_inline)) inline void add_products(__m256i& sum, __m256i a,
                                                                        __m256i b, __m256i ones) {
  asm volatile("" : "+x"(a));  // or one product would do for all
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
}

__attribute__((target("avx2"))) void dot_avx2(long rounds) {
  const __m256i a = _mm256_set1_epi8(1);
  const __m256i b = _mm256_set1_epi8(2);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i s0{}, s1{}, s2{}, s3{}, s4{}, s5{}, s6{}, s7{};
  for (long i = 0; i < rounds; ++i) {
    for (__m256i* sum : {&s0, &s1, &s2, &s3, &s4, &s5, &s6, &s7}) {
      add_products(*sum, a, b, ones);
    }
  }
  keep(s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7);
}

__attribute__((target("avx512f,avx512vnni"))) void dot_avx512_vnni(long rounds) {
  __m512i a = _mm512_set1_epi8(1);
  const __m512i b = _mm512_set1_epi8(2);
  __m512i s0{}, s1{}, s2{}, s3{}, s4{}, s5{}, s6{}, s7{};
  for (long i = 0; i < rounds; ++i) {
    for (__m512i* sum : {&s0, &s1, &s2, &s3, &s4, &s5, &s6, &s7}) {
      asm volatile("" : "+v"(a));  // or one product would do for all
      *sum = _mm512_dpbusd_epi32(*sum, a, b);
    }
  }
  keep(s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7);
}

#endif

DotLimit dot_limit() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vnni")) {
    return {"AVX-512 VNNI", 2.0 * 64 * chains, dot_avx512_vnni};
  }
  if (__builtin_cpu_supports("avx2")) return {"AVX2", 2.0 * 32 * chains, dot_avx2};
#endif
  return {"plain", 2.0 * 16, dot_plain};
}

double read_rate(int threads, const std::uint64_t* data) {
  constexpr std::size_t words = bytes_per_thread / sizeof(std::uint64_t);
  return best_rate(threads, bytes_per_thread,
                   [&](int thread) { keep(sum_plain(data + thread * words, words)); });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : espalier::base::default_compute_threads();
  if (threads < 1) {
    std::fputs("machine_limits [THREADS]\n", stderr);
    return 2;
  }
  const std::size_t words = threads * bytes_per_thread / sizeof(std::uint64_t);
  const auto data = std::make_unique_for_overwrite<std::uint64_t[]>(words);
  std::fill_n(data.get(), words, 1);
  const DotLimit dot = dot_limit();
  const auto dot_rate = [&](int count) {
    return best_rate(count, dot.operations * dot_rounds, [&](int) { dot.run(dot_rounds); });
  };
  std::printf(
      "{\"threads\": %d, \"read_gb_per_s\": [%.1f, %.1f], \"int8_gop_per_s\": [%.0f, %.0f], "
      "\"int8_instructions\": \"%s\"}\n",
      threads, read_rate(1, data.get()) / 1e9, read_rate(threads, data.get()) / 1e9,
      dot_rate(1) / 1e9, dot_rate(threads) / 1e9, dot.instructions);
}
