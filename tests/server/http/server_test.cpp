#include "server/http/server.h"

#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::server::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr double wait_limit = 20;

asio::awaitable<void> greet(Exchange& exchange) {
  Response response{.body = "hello " + exchange.request().parameter};
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> echo(Exchange& exchange) {
  Response response{.body = std::to_string(exchange.request().body.size())};
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> stream(Exchange& exchange) {
  co_await exchange.start_stream();
  for (int i = 0; i < 3; ++i) co_await exchange.send("data: " + std::to_string(i) + "\n\n");
  co_await exchange.finish_stream();
}

asio::awaitable<void> refuse(Exchange&) {
  throw base::RequestError(400, "invalid_value", "No.", "n");
  co_return;
}

asio::awaitable<void> fail(Exchange&) {
  throw std::runtime_error("a secret");
  co_return;
}

asio::awaitable<void> fail_in_stream(Exchange& exchange) {
  co_await exchange.start_stream();
  throw std::runtime_error("a secret");
}

asio::awaitable<void> say_nothing(Exchange&) { co_return; }

/// A handler that waits until it is told to answer, or its client goes away.
class Waiter {
 public:
  Handler handler() {
    return [this](Exchange& exchange) { return wait(exchange); };
  }

  std::promise<void> started;
  std::promise<void> cancelled;
  std::atomic<bool> proceed = false;

 private:
  struct Guard {
    Waiter& waiter;
    bool answered = false;
    ~Guard() {
      if (!answered) waiter.cancelled.set_value();
    }
  };

  asio::awaitable<void> wait(Exchange& exchange) {
    Guard guard{.waiter = *this};
    started.set_value();
    asio::steady_timer timer(co_await asio::this_coro::executor);
    while (!proceed) {
      timer.expires_after(std::chrono::milliseconds(5));
      co_await timer.async_wait(asio::use_awaitable);
    }
    guard.answered = true;
    Response response{.body = "done"};
    co_await exchange.respond(std::move(response));
  }
};

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    router_.add("GET", "/greet/*", greet);
    router_.add("POST", "/echo", echo);
    router_.add("GET", "/stream", stream);
    router_.add("GET", "/refuse", refuse);
    router_.add("GET", "/fail", fail);
    router_.add("GET", "/fail-in-stream", fail_in_stream);
    router_.add("GET", "/nothing", say_nothing);
    router_.add("GET", "/wait", waiter_.handler());
  }

  void start() {
    options_.port = 0;
    server_.emplace(options_, std::move(router_), [this](const ExchangeRecord& record) {
      const std::lock_guard lock(mutex_);
      statuses_.push_back(record.status);
    });
    server_->start();
  }

  tcp::socket connect() {
    tcp::socket socket(io_);
    socket.connect(
        {asio::ip::make_address("127.0.0.1"), static_cast<asio::ip::port_type>(server_->port())});
    return socket;
  }

  /// Everything the server sends until it closes the connection.
  std::string exchange(const std::string& request) {
    tcp::socket socket = connect();
    asio::write(socket, asio::buffer(request));
    return read_all(socket);
  }

  static std::string read_all(tcp::socket& socket) {
    std::string answer;
    boost::system::error_code error;
    asio::read(socket, asio::dynamic_buffer(answer), error);
    return answer;
  }

  std::string get(const std::string& path) {
    return exchange("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  }

  std::vector<int> statuses() {
    const std::lock_guard lock(mutex_);
    return statuses_;
  }

  Waiter waiter_;
  ServerOptions options_;
  Router router_;
  std::mutex mutex_;
  std::vector<int> statuses_;
  asio::io_context io_;
  std::optional<Server> server_;
};

TEST_F(ServerTest, AnswersOneRequestAfterTheOther) {
  start();
  const std::string answer = exchange(
      "GET /greet/a HTTP/1.1\r\nHost: x\r\n\r\nGET /greet/b%20c?d HTTP/1.1\r\nHost: x\r\n"
      "Connection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("hello a"));
  EXPECT_THAT(answer, EndsWith("hello b c"));
}

TEST_F(ServerTest, StreamsInChunks) {
  start();
  const std::string answer = get("/stream");
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(answer, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(answer, EndsWith("9\r\ndata: 0\n\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n"
                               "0\r\n\r\n"));
}

TEST_F(ServerTest, StreamsToOldClientsUntilItCloses) {
  start();
  const std::string answer = exchange("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("chunked")));
  EXPECT_THAT(answer, EndsWith("\r\n\r\ndata: 0\n\ndata: 1\n\ndata: 2\n\n"));
}

TEST_F(ServerTest, TellsTheClientItsFault) {
  start();
  const std::string answer = get("/refuse");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer, HasSubstr(R"("message":"No.")"));
}

TEST_F(ServerTest, KeepsItsOwnFaultsToTheLog) {
  start();
  for (const char* path : {"/fail", "/nothing"}) {
    const std::string answer = get(path);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 500 "));
    EXPECT_THAT(answer, HasSubstr("X-Error-Id: "));
    EXPECT_THAT(answer, Not(HasSubstr("secret")));
  }
  EXPECT_THAT(get("/greet/x"), EndsWith("hello x"));
  EXPECT_THAT(statuses(), testing::ElementsAre(500, 500, 200));
}

TEST_F(ServerTest, EndsAStreamThatFailsWithAnError) {
  start();
  const std::string answer = get("/fail-in-stream");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, HasSubstr(R"(data: {"error":{)"));
  EXPECT_THAT(answer, EndsWith("0\r\n\r\n"));
}

TEST_F(ServerTest, RefusesWhatIsNoHttp) {
  start();
  for (const char* request : {"nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /\x01 x\r\n\r\n",
                              "POST /echo HTTP/1.1\r\nContent-Length: x\r\n\r\n"}) {
    EXPECT_THAT(exchange(request), StartsWith("HTTP/1.1 400 ")) << request;
  }
}

TEST_F(ServerTest, LimitsBodyAndHeaders) {
  options_.body_limit = 1000;
  options_.header_limit = 2000;
  start();
  const auto post = [this](std::size_t bytes) {
    return exchange("POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: " +
                    std::to_string(bytes) + "\r\n\r\n" + std::string(bytes, 'x'));
  };
  EXPECT_THAT(post(1000), EndsWith("1000"));
  EXPECT_THAT(post(1001), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(exchange("GET / HTTP/1.1\r\nX: " + std::string(3000, 'y') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 431 "));
}

TEST_F(ServerTest, LimitsWhatComesBehindABody) {
  options_.header_limit = 2000;
  start();
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* endless : {"0\r\nX: ", "1;x="}) {
    // Whoever keeps it all waits for more.
    EXPECT_THAT(exchange(head + endless + std::string(200'000, 'x')), StartsWith("HTTP/1.1 431 "))
        << endless;
  }
}

TEST_F(ServerTest, RefusesWhatAHeadAsksForInVain) {
  start();
  const auto post = [this](const std::string& field) {
    return exchange("POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + field +
                    "\r\nContent-Length: 1\r\n\r\nx");
  };
  EXPECT_THAT(post("Content-Encoding: gzip"), StartsWith("HTTP/1.1 415 "));
  EXPECT_THAT(post("Content-Encoding: identity"), EndsWith("\r\n\r\n1"));
  EXPECT_THAT(post("Expect: wonders"), StartsWith("HTTP/1.1 417 "));
  EXPECT_THAT(exchange("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
                       "0\r\n\r\n"),
              StartsWith("HTTP/1.1 501 "));
}

TEST_F(ServerTest, AnswersPreflights) {
  start();
  const std::string answer = exchange(
      "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: http://page\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, HasSubstr("Access-Control-Allow-Origin: http://page\r\n"));
  EXPECT_THAT(answer, HasSubstr("Access-Control-Allow-Methods: POST, OPTIONS\r\n"));
}

TEST_F(ServerTest, HeadHasNoBody) {
  start();
  EXPECT_THAT(exchange("HEAD /greet/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              EndsWith("Content-Length: 7\r\n\r\n"));
}

TEST_F(ServerTest, CancelsTheHandlerWhenTheClientGoes) {
  start();
  tcp::socket socket = connect();
  asio::write(socket, asio::buffer(std::string("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")));
  waiter_.started.get_future().wait();
  EXPECT_EQ(server_->running(), 1);
  socket.close();
  EXPECT_EQ(waiter_.cancelled.get_future().wait_for(std::chrono::duration<double>(wait_limit)),
            std::future_status::ready);
  EXPECT_TRUE(server_->wait_idle(wait_limit));
  server_->stop();
  EXPECT_THAT(statuses(), testing::ElementsAre(499));
}

TEST_F(ServerTest, FinishesWhatRunsWhenItStops) {
  start();
  tcp::socket idle = connect();
  asio::write(idle, asio::buffer(std::string("GET /greet/x HTTP/1.1\r\nHost: x\r\n\r\n")));
  tcp::socket busy = connect();
  asio::write(busy, asio::buffer(std::string("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")));
  waiter_.started.get_future().wait();
  server_->stop_accepting();
  EXPECT_THAT(read_all(idle), EndsWith("hello x"));  // and its connection is closed
  EXPECT_FALSE(server_->wait_idle(0));
  waiter_.proceed = true;
  EXPECT_TRUE(server_->wait_idle(wait_limit));
  EXPECT_THAT(read_all(busy), EndsWith("done"));
  EXPECT_THROW(connect(), boost::system::system_error);
}

TEST_F(ServerTest, StopsInTheMidstOfARequest) {
  start();
  tcp::socket socket = connect();
  asio::write(socket, asio::buffer(std::string("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")));
  waiter_.started.get_future().wait();
  server_->stop();
  server_.reset();
  EXPECT_EQ(waiter_.cancelled.get_future().wait_for(std::chrono::seconds(0)),
            std::future_status::ready);
}

TEST_F(ServerTest, NamesThePortThatIsTaken) {
  start();
  ServerOptions options;
  options.port = server_->port();
  try {
    const Server second(options, Router(), {});
    FAIL() << "two servers listen on one port";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:" + std::to_string(options.port)));
  }
}

}  // namespace
}  // namespace espalier::server::http
