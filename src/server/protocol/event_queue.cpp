#include "server/protocol/event_queue.h"

#include <mutex>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace espalier::server::protocol {

namespace asio = boost::asio;

/// The timer is what the coroutine sleeps on; it is touched on the strand alone. Sinks only post to
/// the strand, and only while the queue lives: they hold the mutex, and so does the destructor.
struct EventQueue::State {
  std::mutex mutex;
  std::vector<SequenceEvent> events;
  std::size_t capacity = 0;
  bool notified = false;
  std::shared_ptr<asio::steady_timer> timer;  // null once the queue is gone

  void push(int sequence, generation::TokenEvent event,
            const base::CancellationToken& cancellation) {
    const std::lock_guard lock(mutex);
    if (!timer) return;
    if (events.size() >= capacity && event.finish == generation::FinishReason::none) {
      if (cancellation.cancelled()) return;
      cancellation.cancel();
      event = {};
      event.finish = generation::FinishReason::error;
      event.error = "the client does not read its events";
    }
    events.push_back({sequence, std::move(event)});
    if (std::exchange(notified, true)) return;
    asio::post(timer->get_executor(), [weak = std::weak_ptr(timer)] {
      if (const auto sleeper = weak.lock()) sleeper->cancel();
    });
  }
};

EventQueue::EventQueue(asio::any_io_executor executor, std::size_t capacity)
    : state_(std::make_shared<State>()) {
  state_->capacity = capacity;
  state_->timer = std::make_shared<asio::steady_timer>(std::move(executor));
}

EventQueue::~EventQueue() {
  const std::lock_guard lock(state_->mutex);
  state_->timer.reset();
}

generation::TokenSink EventQueue::sink(int sequence, base::CancellationToken cancellation) {
  return [state = state_, sequence,
          cancellation = std::move(cancellation)](generation::TokenEvent event) {
    state->push(sequence, std::move(event), cancellation);
  };
}

asio::awaitable<std::vector<SequenceEvent>> EventQueue::next(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    std::vector<SequenceEvent> events;
    {
      const std::lock_guard lock(state_->mutex);
      events.swap(state_->events);
      state_->notified = false;
    }
    if (!events.empty()) co_return events;
    boost::system::error_code error;
    state_->timer->expires_at(deadline);
    co_await state_->timer->async_wait(asio::redirect_error(asio::use_awaitable, error));
    if (!error) co_return events;
  }
}

}  // namespace espalier::server::protocol
