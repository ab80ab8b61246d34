#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/fields.hpp>

#include "server/http/exchange.h"
#include "server/http/server.h"

namespace espalier::server::http {

/// What all connections of a server share. Outlives them.
struct ConnectionContext {
  ServerOptions options;
  Router router;
  Observer observer;
  boost::asio::thread_pool& workers;
  std::atomic<bool> draining = false;
  std::function<void(int change)> count_running;
};

/// One client connection: reads requests one after the other and answers each. Lives on its strand.
class Connection : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ConnectionContext& context);

  /// Serves until the connection ends.
  boost::asio::awaitable<void> run();
  /// Ends the connection if it waits for a request; thread-safe.
  void close_if_idle();

  const Request& request() const override { return request_; }
  boost::asio::awaitable<void> respond(Response response) override;
  boost::asio::awaitable<void> start_stream() override;
  boost::asio::awaitable<void> send(std::string data) override;
  boost::asio::awaitable<void> finish_stream() override;
  base::CancellationToken client_gone() const override { return cancellation_; }
  boost::asio::thread_pool& workers() override { return context_.workers; }

 private:
  enum class Phase { unanswered, streaming, answered };

  boost::asio::awaitable<bool> read_request();
  boost::asio::awaitable<void> answer();
  boost::asio::awaitable<void> dispatch();
  boost::asio::awaitable<void> respond_internal_error(std::string cause);
  boost::asio::awaitable<void> watch_client();
  boost::asio::awaitable<void> close_gently();
  boost::beast::http::fields common_fields() const;
  void record(std::chrono::steady_clock::time_point start);

  boost::beast::tcp_stream stream_;
  ConnectionContext& context_;
  boost::beast::flat_buffer buffer_;
  Request request_;
  std::string_view route_;
  unsigned version_ = 11;
  bool keep_alive_ = true;
  bool busy_ = false;
  bool client_gone_ = false;
  base::CancellationToken cancellation_;
  Phase phase_ = Phase::unanswered;
  int status_ = 0;
};

}  // namespace espalier::server::http
