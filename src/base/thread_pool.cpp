#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

#include "base/error.h"
#include "base/processor_count.h"

namespace espalier::base {
namespace {

using Word = std::uint32_t;

/// Long enough to bridge the serial code between two parallel regions of one token, short enough
/// that a finished request leaves the processor idle at once.
constexpr auto spin_time = std::chrono::microseconds(50);
/// Pauses between two looks at the clock.
constexpr int pauses_per_look = 32;
/// Turns given away to whoever else wants this core before the thread parks.
constexpr int yields = 64;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins until `word` differs from `old`; false when the time was up first.
bool spin(const std::atomic<Word>& word, Word old) {
  const auto deadline = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < pauses_per_look; ++i) {
      if (word.load(std::memory_order_acquire) != old) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

/// Where a worker ran last, on a cache line of its own.
struct alignas(64) Processor {
  std::atomic<int> number{-1};
};

/// Waits for the next piece of work, which may never come.
void wait_for_work(const std::atomic<Word>& word, Word old, bool may_spin) {
  if (may_spin && spin(word, old)) return;
  word.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::State {
  explicit State(int threads)
      : size(threads),
        allowed(allowed_processors()),
        processors(static_cast<std::size_t>(threads)) {
    // With more threads than processors a spinning thread keeps a working one from its core.
    may_spin = allowed.empty() || processors.size() <= allowed.size();
  }

  void work(int worker) {
    for (Word seen = 0;;) {
      wait_for_work(generation, seen, may_spin);
      // The next run starts only when this worker has finished the present one, so it never misses
      // a generation.
      ++seen;
      if (stopping) return;
      note_processor(worker);
      (*task)(worker);
      if (crowded.load(std::memory_order_relaxed)) spread(worker);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) finish_run();
    }
  }

  /// Waits for workers that are already running: a peer that lost its core to another program gets
  /// it back sooner when this thread yields instead of spinning on.
  void wait_for_peers(const std::atomic<Word>& word, Word old) {
    if (may_spin && spin(word, old)) return;
    crowded.store(true, std::memory_order_relaxed);
    for (int i = 0; i < yields; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      std::this_thread::yield();
    }
    word.wait(old, std::memory_order_acquire);
  }

  void note_processor(int worker) {
    processors[static_cast<std::size_t>(worker)].number.store(sched_getcpu(),
                                                              std::memory_order_relaxed);
  }

  /// Gives this worker a processor of its own. The system may leave two workers on one for long
  /// while another program has the rest; each region then costs two spins and a switch: 200 µs
  /// instead of 1, measured on two Zen 3 cores beside a compiler of lower priority.
  void spread(int worker) {
    if (!may_spin) return;
    const int own = sched_getcpu();
    std::vector<int> taken;
    bool shared = false;
    for (int other = 0; other < size; ++other) {
      if (other == worker) continue;
      const int processor =
          processors[static_cast<std::size_t>(other)].number.load(std::memory_order_relaxed);
      taken.push_back(processor);
      // Of two on one processor the later one moves.
      shared = shared || (processor == own && other < worker);
    }
    if (shared) move_off_processors(allowed, taken);
  }

  void finish_run() {
    finished.fetch_add(1, std::memory_order_release);
    finished.notify_all();
  }

  void start() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }

  const int size;
  const std::vector<int> allowed;
  bool may_spin;
  std::mutex turn;  // held by whoever runs

  // Written by the holder of `turn` before `generation` moves, read by workers after.
  const std::function<void(int)>* task = nullptr;
  bool stopping = false;

  std::vector<Processor> processors;  // by worker
  std::atomic<bool> crowded{false};   // somebody waited longer than a spin

  // Each on a cache line of its own: they change hands at different times.
  alignas(64) std::atomic<Word> generation{0};
  alignas(64) std::atomic<int> pending{0};
  alignas(64) std::atomic<Word> finished{0};
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<Word> phase{0};

  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(std::max(threads, 1))) {
  for (int worker = 1; worker < state_->size; ++worker) {
    state_->threads.emplace_back([state = state_.get(), worker] { state->work(worker); });
  }
}

ThreadPool::~ThreadPool() {
  const std::lock_guard lock(state_->turn);
  state_->stopping = true;
  state_->start();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::size() const { return state_->size; }

void ThreadPool::run(const std::function<void(int worker)>& task) {
  const std::lock_guard lock(state_->turn);
  if (state_->size == 1) return task(0);
  state_->task = &task;
  state_->crowded.store(false, std::memory_order_relaxed);
  state_->note_processor(0);
  state_->pending.store(state_->size, std::memory_order_relaxed);
  const Word finished = state_->finished.load(std::memory_order_relaxed);
  state_->start();
  task(0);
  if (state_->pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    state_->finished.store(finished + 1, std::memory_order_relaxed);
    return;
  }
  state_->wait_for_peers(state_->finished, finished);
}

void ThreadPool::barrier() {
  if (state_->size == 1) return;
  // `phase` cannot move before this worker arrives, so it is safe to read first.
  const Word phase = state_->phase.load(std::memory_order_relaxed);
  if (state_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == state_->size) {
    state_->arrived.store(0, std::memory_order_relaxed);
    state_->phase.store(phase + 1, std::memory_order_release);
    state_->phase.notify_all();
  } else {
    state_->wait_for_peers(state_->phase, phase);
  }
}

namespace {

std::mutex compute_pool_mutex;
std::unique_ptr<ThreadPool> compute_pool_owner;
std::atomic<ThreadPool*> compute_pool_pointer{nullptr};

void install_compute_pool(int threads) {
  compute_pool_pointer.store(nullptr, std::memory_order_release);
  compute_pool_owner = std::make_unique<ThreadPool>(threads);
  compute_pool_pointer.store(compute_pool_owner.get(), std::memory_order_release);
}

}  // namespace

ThreadPool& compute_pool() {
  ThreadPool* pool = compute_pool_pointer.load(std::memory_order_acquire);
  if (pool != nullptr) return *pool;
  const std::lock_guard lock(compute_pool_mutex);
  if (!compute_pool_owner) install_compute_pool(default_compute_threads());
  return *compute_pool_owner;
}

void set_compute_threads(int threads) {
  if (threads < 1) {
    throw UsageError("the number of threads must be at least 1, not " + std::to_string(threads));
  }
  const std::lock_guard lock(compute_pool_mutex);
  if (compute_pool_owner && compute_pool_owner->size() == threads) return;
  install_compute_pool(threads);
}

int default_compute_threads() {
  const std::vector<int> processors = allowed_processors();
  int threads = count_cores(processors, "/sys/devices/system/cpu");
  if (threads == 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  // A thread beyond the quota would stop all the others at the end of every period.
  if (const auto quota = control_group_quota("/proc/self/cgroup", "/sys/fs/cgroup")) {
    threads = std::min(threads, static_cast<int>(*quota));
  }
  return std::max(threads, 1);
}

}  // namespace espalier::base
