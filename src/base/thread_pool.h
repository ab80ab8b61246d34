#pragma once

#include <functional>
#include <memory>

namespace espalier::base {

/// The threads that compute. The caller of `run` is worker 0; the other `size() - 1` workers spin
/// briefly between calls, then park, so an idle process uses no CPU. One `run` at a time (others
/// wait their turn).
class ThreadPool {
 public:
  /// `threads` counts the caller too; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  /// Calls `task(worker)` once for every worker in [0, size()) and returns when all have returned.
  /// `task` must not throw. Work is best claimed from `TileCounter` so that a slow core gets less.
  void run(const std::function<void(int worker)>& task);

  /// All workers of the `run` in progress meet here; to be called by each worker equally often.
  void barrier();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The pool that kernels use. Created on first use with `default_compute_threads()` workers.
ThreadPool& compute_pool();

/// Replaces the compute pool; call while nothing computes. Throws `UsageError` when `threads` < 1.
void set_compute_threads(int threads);

/// Physical cores this process may use: affinity mask and cgroup quota respected, SMT siblings
/// counted once.
int default_compute_threads();

}  // namespace espalier::base
