#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/router.h"

namespace espalier::server::http {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free one
  int io_threads = 2;
  int worker_threads = 1;
  std::size_t header_limit = 64 * 1024;
  std::size_t body_limit = 32 * 1024 * 1024;
};

/// What happened to one request, for logs and counters.
struct ExchangeRecord {
  std::string_view method;
  std::string_view route;  // the route's pattern; empty when none fitted
  int status = 0;          // 499: the client went away before it was answered
  double seconds = 0;
};
/// Called on an io thread; must be thread-safe and must not throw.
using Observer = std::function<void(const ExchangeRecord&)>;

/// An HTTP/1.1 server: keep-alive, chunked server-sent events, limits, time-outs, CORS.
class Server {
 public:
  /// Binds and listens. Throws `std::runtime_error` naming address and cause when it cannot.
  Server(const ServerOptions& options, Router router, Observer observer);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& host() const;
  int port() const;

  /// Starts the io threads.
  void start();
  /// Calls `handler` on an io thread for each SIGINT and SIGTERM from now on.
  void on_signal(std::function<void()> handler);

  /// Closes the listening socket and idle connections; running requests go on, new ones on open
  /// connections are refused with 503.
  void stop_accepting();
  /// Requests being answered.
  int running() const;
  /// Waits until none is, at most `seconds`, or until `interrupt_wait`; true when none is.
  bool wait_idle(double seconds);
  void interrupt_wait();
  /// Ends every connection and joins the threads.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::server::http
