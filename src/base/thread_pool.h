#pragma once

#include <functional>
#include <memory>

namespace espalier::base {

/// The threads that compute. The caller of `run` is worker 0; the other `size() - 1` workers spin
/// briefly between calls, then park, so an idle process uses no CPU. A worker that gets no
/// processor in time is not waited for: the others do its work. One `run` at a time (others wait
/// their turn).
class ThreadPool {
 public:
  /// `threads` counts the caller too; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  /// Calls `task(0)` on this thread and `task(worker)` for those of the other workers in [1,
  /// size()) that come before it returns; returns when all calls have. So a task claims its work
  /// piece by piece (`TileCounter`) until none is left. It must not throw.
  void run(const std::function<void(int worker)>& task);

  /// All workers in the `run` in progress meet here, and no further one joins it; to be called by
  /// each worker equally often.
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
