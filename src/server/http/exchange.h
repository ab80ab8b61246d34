#pragma once

#include <functional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/cancellation.h"
#include "server/http/message.h"

namespace espalier::server::http {

/// One request and the way to answer it: either `respond` once, or `start_stream`, `send` any
/// number of times and `finish_stream`. Everything runs on the connection's strand. When the client
/// goes away, the handler's coroutine is cancelled at its next `co_await`, so whatever it owns must
/// stop its work in its destructor.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  virtual boost::asio::awaitable<void> respond(Response response) = 0;
  /// Sends the head of a server-sent event stream.
  virtual boost::asio::awaitable<void> start_stream() = 0;
  /// Returns when `data` has been handed to the socket, so a slow client slows its handler down.
  virtual boost::asio::awaitable<void> send(std::string data) = 0;
  virtual boost::asio::awaitable<void> finish_stream() = 0;
  /// Cancelled when the client goes away: for work between two `co_await`s that takes long.
  virtual base::CancellationToken client_gone() const = 0;
  /// Threads for work that would keep the two io threads from answering others.
  virtual boost::asio::thread_pool& workers() = 0;
};

/// Answers an exchange. A `base::RequestError` becomes the client's error; any other exception is
/// logged and becomes a 500.
using Handler = std::function<boost::asio::awaitable<void>(Exchange&)>;

}  // namespace espalier::server::http
