#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace espalier::chat {

/// A step of a parser, written as if all text were there already: it is left where text is missing
/// and goes on there when more has come. Starts when awaited; owned by whoever awaits it.
template <typename T>
class Task;

namespace detail {

struct TaskPromiseBase {
  std::coroutine_handle<> parent;
  std::exception_ptr failure;

  /// Goes on with the parent if it has been left waiting; else control returns to it by itself.
  struct Final {
    bool await_ready() const noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
      const auto parent = ended.promise().parent;
      return parent ? parent : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  Final final_suspend() const noexcept { return {}; }
  void unhandled_exception() { failure = std::current_exception(); }
};

template <typename T>
struct TaskPromise : TaskPromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  void return_value(T result) { value = std::move(result); }
  T take() { return std::move(*value); }
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  Task<void> get_return_object();
  void return_void() {}
  void take() {}
};

}  // namespace detail

template <typename T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  /// Runs a task that nobody awaits up to the first place where text is missing.
  void start() { run(); }
  bool done() const { return handle_.done(); }
  /// Throws what the task has thrown.
  T result() {
    if (handle_.promise().failure) std::rethrow_exception(handle_.promise().failure);
    return handle_.promise().take();
  }

  // Runs the task before suspending the parent: mostly the text is there, and the stack does not
  // grow with the number of tasks awaited in a row.
  bool await_ready() { return run(); }
  void await_suspend(std::coroutine_handle<> parent) { handle_.promise().parent = parent; }
  T await_resume() { return result(); }

 private:
  bool run() {
    handle_.resume();
    return handle_.done();
  }

  std::coroutine_handle<promise_type> handle_;
};

namespace detail {

template <typename T>
Task<T> TaskPromise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}

inline Task<void> TaskPromise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}

}  // namespace detail
}  // namespace espalier::chat
