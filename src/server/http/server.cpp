#include "server/http/server.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/spdlog.h>

#include "server/http/connection.h"

namespace espalier::server::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct Server::Impl {
  Impl(const ServerOptions& options, Router router, Observer observer)
      : context{.options = options,
                .router = std::move(router),
                .observer = std::move(observer),
                .workers = workers,
                .count_running = [this](int change) { count_running(change); }},
        io(options.io_threads),
        acceptor(asio::make_strand(io)),
        signals(io),
        workers(static_cast<std::size_t>(options.worker_threads)) {
    listen();
  }

  void listen();
  asio::awaitable<void> accept_clients();
  asio::awaitable<void> serve(std::shared_ptr<Connection> connection);
  void wait_for_signal(std::function<void()> handler);

  void count_running(int change) {
    const std::lock_guard lock(mutex);
    running += change;
    if (running == 0) idle.notify_all();
  }

  // Destroyed in reverse: the workers before the io context that their results go to, and that
  // before the context its coroutines use.
  std::mutex mutex;
  std::condition_variable idle;
  int running = 0;
  bool interrupted = false;
  std::set<std::weak_ptr<Connection>, std::owner_less<>> connections;
  int port = 0;
  bool stopped = false;

  ConnectionContext context;
  asio::io_context io;
  tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::thread_pool workers;
  std::vector<std::thread> threads;
};

void Server::Impl::listen() {
  const std::string where = context.options.host + ":" + std::to_string(context.options.port);
  try {
    tcp::resolver resolver(io);
    const tcp::endpoint endpoint =
        resolver.resolve(context.options.host, std::to_string(context.options.port))
            .begin()
            ->endpoint();
    acceptor.open(endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen(asio::socket_base::max_listen_connections);
    port = acceptor.local_endpoint().port();
  } catch (const boost::system::system_error& error) {
    throw std::runtime_error("cannot listen on " + where + ": " + error.code().message());
  }
}

asio::awaitable<void> Server::Impl::serve(std::shared_ptr<Connection> connection) {
  try {
    co_await connection->run();
  } catch (const std::exception& error) {
    spdlog::debug("a connection ended: {}", error.what());
  }
  const std::lock_guard lock(mutex);
  connections.erase(connection);
}

asio::awaitable<void> Server::Impl::accept_clients() {
  while (acceptor.is_open()) {
    error_code error;
    tcp::socket socket =
        co_await acceptor.async_accept(asio::any_io_executor(asio::make_strand(io)),
                                       asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) co_return;
    if (error) {
      // Out of file descriptors, mostly: wait until some are given back.
      asio::steady_timer pause(acceptor.get_executor(), std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::use_awaitable);
      continue;
    }
    const auto executor = socket.get_executor();
    auto connection = std::make_shared<Connection>(std::move(socket), context);
    {
      const std::lock_guard lock(mutex);
      connections.insert(connection);
    }
    asio::co_spawn(executor, serve(std::move(connection)), asio::detached);
  }
}

void Server::Impl::wait_for_signal(std::function<void()> handler) {
  signals.async_wait([this, handler = std::move(handler)](const error_code& error, int) {
    if (error) return;
    handler();
    wait_for_signal(handler);
  });
}

Server::Server(const ServerOptions& options, Router router, Observer observer)
    : impl_(std::make_unique<Impl>(options, std::move(router), std::move(observer))) {}

Server::~Server() { stop(); }

const std::string& Server::host() const { return impl_->context.options.host; }

int Server::port() const { return impl_->port; }

void Server::start() {
  asio::co_spawn(impl_->acceptor.get_executor(), impl_->accept_clients(), asio::detached);
  for (int i = 0; i < impl_->context.options.io_threads; ++i) {
    impl_->threads.emplace_back([this] { impl_->io.run(); });
  }
}

void Server::on_signal(std::function<void()> handler) {
  impl_->signals.add(SIGINT);
  impl_->signals.add(SIGTERM);
  impl_->wait_for_signal(std::move(handler));
}

void Server::stop_accepting() {
  impl_->context.draining = true;
  asio::post(impl_->acceptor.get_executor(), [this] {
    error_code ignored;
    impl_->acceptor.close(ignored);
  });
  const std::lock_guard lock(impl_->mutex);
  for (const auto& weak : impl_->connections) {
    if (const auto connection = weak.lock()) connection->close_if_idle();
  }
}

int Server::running() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->running;
}

bool Server::wait_idle(double seconds) {
  std::unique_lock lock(impl_->mutex);
  impl_->idle.wait_for(lock, std::chrono::duration<double>(seconds),
                       [this] { return impl_->running == 0 || impl_->interrupted; });
  return impl_->running == 0;
}

void Server::interrupt_wait() {
  const std::lock_guard lock(impl_->mutex);
  impl_->interrupted = true;
  impl_->idle.notify_all();
}

void Server::stop() {
  if (std::exchange(impl_->stopped, true)) return;
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->workers.stop();
  impl_->workers.join();
}

}  // namespace espalier::server::http
