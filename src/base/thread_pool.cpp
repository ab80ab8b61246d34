#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <sched.h>

#include "base/error.h"
#include "base/processor_count.h"
#include "base/wake_word.h"

namespace espalier::base {
namespace {

using Word = WakeWord::Value;

/// Workers that wait so long for one another may share a processor.
constexpr auto crowded_wait = std::chrono::microseconds(100);

/// Where a worker ran last, on a cache line of its own.
struct alignas(64) Processor {
  std::atomic<int> number{-1};
};

/// The door to the run in progress, in one word so that a worker enters or finds it closed: which
/// run it leads to, whether it is open, and how many have entered.
class Door {
 public:
  /// Opens it to run `number`, with the caller inside.
  void open(Word number) {
    state_.store(Layout{number} << number_shift | open_bit | 1, std::memory_order_release);
  }

  /// Whether a worker came in time for run `number`; it is counted then.
  bool enter(Word number) {
    Layout state = state_.load(std::memory_order_acquire);
    while (state >> number_shift == number && (state & open_bit) != 0) {
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

  /// Nobody else enters; returns how many have. May be called by several and more than once.
  Word close() {
    const Layout state = state_.fetch_and(~open_bit, std::memory_order_acq_rel);
    return static_cast<Word>(state & count_mask);
  }

 private:
  using Layout = std::uint64_t;
  static constexpr int number_shift = 32;
  static constexpr Layout open_bit = Layout{1} << 31;
  static constexpr Layout count_mask = open_bit - 1;

  alignas(64) std::atomic<Layout> state_{0};
};

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
      seen = runs.wait(seen, may_spin);
      if (stopping.load(std::memory_order_relaxed)) return;
      if (!door.enter(seen)) continue;
      note_processor(worker);
      (*task)(worker);
      if (crowded.load(std::memory_order_relaxed)) spread(worker);
      done.advance();
    }
  }

  /// Ends all workers; none is inside a run.
  void stop() {
    stopping = true;
    runs.advance();
    for (std::thread& thread : threads) thread.join();
  }

  /// Waits for workers that are inside.
  Word wait(WakeWord& word, Word old) {
    const auto start = std::chrono::steady_clock::now();
    const Word value = word.wait(old, may_spin);
    if (std::chrono::steady_clock::now() - start > crowded_wait) {
      crowded.store(true, std::memory_order_relaxed);
    }
    return value;
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

  const int size;
  const std::vector<int> allowed;
  bool may_spin;
  std::mutex turn;  // held by whoever runs

  // Written by the holder of `turn` before the door opens, read by workers that entered.
  const std::function<void(int)>* task = nullptr;
  std::atomic<bool> stopping{false};

  std::vector<Processor> processors;  // by worker
  std::atomic<bool> crowded{false};   // somebody waited until asleep

  WakeWord runs;   // the number of the last run that began
  Door door;       // to that run
  WakeWord done;   // workers that left a run, over all runs
  WakeWord phase;  // barriers passed
  alignas(64) std::atomic<Word> arrived{0};

  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(std::max(threads, 1))) {
  try {
    for (int worker = 1; worker < state_->size; ++worker) {
      state_->threads.emplace_back([state = state_.get(), worker] { state->work(worker); });
    }
  } catch (const std::system_error& error) {
    state_->stop();
    throw std::runtime_error("cannot start " + std::to_string(threads) +
                             " threads: " + error.code().message());
  }
}

ThreadPool::~ThreadPool() {
  const std::lock_guard lock(state_->turn);
  state_->stop();
}

int ThreadPool::size() const { return state_->size; }

void ThreadPool::run(const std::function<void(int worker)>& task) {
  const std::lock_guard lock(state_->turn);
  if (state_->size == 1) return task(0);
  State& state = *state_;
  state.task = &task;
  state.crowded.store(false, std::memory_order_relaxed);
  state.note_processor(0);
  const Word before = state.done.value();
  state.door.open(state.runs.value() + 1);
  state.runs.advance();
  task(0);
  const Word helpers = state.door.close() - 1;
  for (Word left = state.done.value(); left - before != helpers;)
    left = state.wait(state.done, left);
}

void ThreadPool::barrier() {
  if (state_->size == 1) return;
  State& state = *state_;
  const Word inside = state.door.close();
  // `phase` cannot move before this worker arrives, so it is safe to read first.
  const Word phase = state.phase.value();
  if (state.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == inside) {
    state.arrived.store(0, std::memory_order_relaxed);
    state.phase.advance();
  } else {
    state.wait(state.phase, phase);
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
  constexpr int most = 1024;
  if (threads < 1 || threads > most) {
    throw UsageError("the number of threads must be between 1 and " + std::to_string(most) +
                     ", not " + std::to_string(threads));
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
