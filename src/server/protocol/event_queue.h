#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "generation/request.h"

namespace espalier::server::protocol {

/// An event of one of a request's sequences.
struct SequenceEvent {
  int sequence = 0;
  generation::TokenEvent event;
};

/// Carries token events from the engine's thread to a coroutine. The queue belongs to the coroutine
/// and lives on its strand; sinks may outlive it and then drop what they get.
class EventQueue {
 public:
  /// A sequence whose events overflow `capacity` because nobody takes them is cancelled through its
  /// token and ends with an error.
  EventQueue(boost::asio::any_io_executor executor, std::size_t capacity);
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  /// What to give the engine for sequence `sequence`.
  generation::TokenSink sink(int sequence, base::CancellationToken cancellation);

  /// All events that have arrived, in order; waits for the first one at most `limit` and returns
  /// nothing when none came.
  boost::asio::awaitable<std::vector<SequenceEvent>> next(std::chrono::milliseconds limit);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace espalier::server::protocol
