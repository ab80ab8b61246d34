#include "server/http/connection.h"

#include <optional>
#include <random>
#include <stdexcept>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <spdlog/spdlog.h>

#include "server/http/error_body.h"

namespace espalier::server::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using boost::system::error_code;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr auto idle_timeout = seconds(75);      // until the next request's head is complete
constexpr auto progress_timeout = seconds(30);  // without a byte of a body
constexpr auto write_timeout = seconds(60);     // for one write to a client that does not read
constexpr auto linger_timeout = seconds(2);     // for the client to read a last answer
constexpr std::size_t read_ahead_limit = 64 * 1024;
constexpr int client_closed_status = 499;

auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

/// What a client is told whose bytes are no acceptable HTTP; nothing when it just went away.
std::optional<base::RequestError> parse_fault(const error_code& error,
                                              const ServerOptions& limits) {
  if (error == bhttp::error::header_limit || error == bhttp::error::buffer_overflow) {
    return base::RequestError(
        431, "headers_too_large",
        "The request's headers exceed " + std::to_string(limits.header_limit) + " bytes.");
  }
  if (error == bhttp::error::body_limit) {
    return base::RequestError(
        413, "request_too_large",
        "The request's body exceeds " + std::to_string(limits.body_limit) + " bytes.");
  }
  const bool malformed =
      error.category() == bhttp::make_error_code(bhttp::error::bad_version).category();
  if (!malformed || error == bhttp::error::end_of_stream ||
      error == bhttp::error::partial_message) {
    return std::nullopt;
  }
  return base::RequestError(400, "malformed_http",
                            "The request is not valid HTTP: " + error.message() + ".");
}

/// What a request's head asks for that is not there.
std::optional<base::RequestError> head_fault(const bhttp::fields& head) {
  const auto asks_other = [&head](bhttp::field field, std::string_view known) {
    const auto value = head[field];
    return !value.empty() && !beast::iequals(value, known);
  };
  if (asks_other(bhttp::field::transfer_encoding, "chunked")) {
    return base::RequestError(501, "unsupported_encoding",
                              "The only Transfer-Encoding that is read is 'chunked'.");
  }
  if (asks_other(bhttp::field::content_encoding, "identity")) {
    return base::RequestError(415, "unsupported_encoding",
                              "A body with a Content-Encoding is not read; send it as it is.");
  }
  if (asks_other(bhttp::field::expect, "100-continue")) {
    return base::RequestError(417, "expectation_failed",
                              "The only expectation that is met is '100-continue'.");
  }
  return std::nullopt;
}

std::string random_id() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(generator()));
  return text;
}

/// The answer to a browser's question whether it may ask (and to any other OPTIONS).
Response preflight_response(const std::string& allow) {
  const std::string methods = allow.empty() ? "GET, POST, OPTIONS" : allow;
  return {.status = 200,
          .body = "",
          .content_type = "text/plain",
          .headers = {{"Allow", methods},
                      {"Access-Control-Allow-Methods", methods},
                      {"Access-Control-Allow-Headers", "*, Authorization"},
                      {"Access-Control-Max-Age", "86400"}}};
}

Response method_not_allowed(const Request& request, const std::string& allow) {
  Response response = error_response(base::RequestError(
      405, "method_not_allowed",
      "'" + request.path + "' does not take " + request.method + ", only " + allow + "."));
  response.headers.emplace_back("Allow", allow);
  return response;
}

template <typename Message>
void set_fields(Message& message, const bhttp::fields& fields) {
  for (const auto& field : fields) message.set(field.name_string(), field.value());
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, ConnectionContext& context)
    : stream_(std::move(socket)),
      context_(context),
      buffer_(context.options.header_limit + read_ahead_limit) {
  error_code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
}

asio::awaitable<void> Connection::run() {
  using namespace asio::experimental::awaitable_operators;
  while (keep_alive_) {
    const bool complete = co_await read_request();
    if (!complete) break;
    const auto start = steady_clock::now();
    busy_ = true;
    context_.count_running(+1);
    co_await (answer() || watch_client());
    context_.count_running(-1);
    busy_ = false;
    record(start);
    if (client_gone_) co_return;
    buffer_.shrink_to_fit();
    if (context_.draining) keep_alive_ = false;
  }
  co_await close_gently();
}

void Connection::close_if_idle() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] {
    if (!self->busy_) self->stream_.cancel();
  });
}

asio::awaitable<bool> Connection::read_request() {
  bhttp::request_parser<bhttp::string_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(context_.options.header_limit));
  parser.body_limit(context_.options.body_limit);
  request_ = {};
  route_ = {};
  phase_ = Phase::unanswered;
  status_ = 0;
  error_code error;
  stream_.expires_after(idle_timeout);
  co_await bhttp::async_read_header(stream_, buffer_, parser, into(error));
  std::optional<base::RequestError> fault;
  if (!error) fault = head_fault(parser.get());
  // Clients of HTTP/1.0 do not know interim answers.
  const bool asks_to_proceed =
      parser.get().version() >= 11 && !parser.get()[bhttp::field::expect].empty();
  if (!error && !fault && asks_to_proceed) {
    bhttp::response<bhttp::empty_body> proceed{bhttp::status::continue_, 11};
    co_await bhttp::async_write(stream_, proceed, into(error));
  }
  while (!error && !fault && !parser.is_done()) {
    stream_.expires_after(progress_timeout);
    co_await bhttp::async_read_some(stream_, buffer_, parser, into(error));
  }
  stream_.expires_never();
  auto message = std::move(parser.get());
  version_ = message.version() >= 11 ? 11 : 10;
  request_.method = message.method_string();
  request_.origin = message[bhttp::field::origin];
  if (error) fault = parse_fault(error, context_.options);
  if (error || fault) {
    keep_alive_ = false;
    if (fault) {
      co_await respond(error_response(*fault));
      record(steady_clock::now());
    }
    co_return false;
  }
  keep_alive_ = message.keep_alive();
  request_.path = message.target();
  request_.body = std::move(message.body());
  co_return true;
}

asio::awaitable<void> Connection::answer() {
  std::optional<base::RequestError> fault;
  std::string cause;
  try {
    co_await dispatch();
    co_return;
  } catch (const base::RequestError& error) {
    fault = error;
  } catch (const std::exception& error) {
    cause = error.what();
  } catch (...) {
    cause = "unknown exception";
  }
  if (client_gone_) co_return;
  try {
    if (!fault) {
      co_await respond_internal_error(std::move(cause));
    } else if (phase_ == Phase::unanswered) {
      co_await respond(error_response(*fault));
    } else if (phase_ == Phase::streaming) {
      const std::string body = error_response(*fault).body;
      co_await send("data: " + body + "\n\n");
      co_await finish_stream();
    }
  } catch (const boost::system::system_error&) {
    client_gone_ = true;
  }
}

asio::awaitable<void> Connection::dispatch() {
  request_.path = decode_path(request_.path);
  Router::Match match = context_.router.find(request_.method, request_.path);
  route_ = match.pattern;
  if (request_.method == "OPTIONS") {
    co_await respond(preflight_response(match.allow));
    co_return;
  }
  if (match.pattern.empty()) {
    throw base::RequestError(404, "not_found", "There is nothing at '" + request_.path + "'.");
  }
  if (match.handler == nullptr) {
    co_await respond(method_not_allowed(request_, match.allow));
    co_return;
  }
  if (context_.draining) {
    throw base::RequestError(503, "shutting_down", "The server is shutting down.");
  }
  request_.parameter = std::move(match.parameter);
  co_await (*match.handler)(*this);
  if (phase_ != Phase::answered) throw std::logic_error("the handler left the request unanswered");
}

asio::awaitable<void> Connection::respond_internal_error(std::string cause) {
  const std::string id = random_id();
  spdlog::error("{} {} failed, error id {}: {}", request_.method, request_.path, id, cause);
  const std::string body = error_body(
      500, "Internal error; the server's log has it under id " + id + ".", "internal_error", "");
  if (phase_ == Phase::unanswered) {
    Response response{.status = 500, .body = body};
    response.headers.emplace_back("X-Error-Id", id);
    co_await respond(std::move(response));
  } else if (phase_ == Phase::streaming) {
    co_await send("data: " + body + "\n\n");
    co_await finish_stream();
  }
}

bhttp::fields Connection::common_fields() const {
  bhttp::fields fields;
  fields.set(bhttp::field::server, "espalier");
  fields.set(bhttp::field::access_control_allow_origin,
             request_.origin.empty() ? std::string("*") : request_.origin);
  if (!request_.origin.empty()) fields.set(bhttp::field::vary, "Origin");
  return fields;
}

asio::awaitable<void> Connection::respond(Response response) {
  if (phase_ != Phase::unanswered) throw std::logic_error("the request was answered twice");
  phase_ = Phase::answered;
  status_ = response.status;
  if (context_.draining) keep_alive_ = false;
  bhttp::response<bhttp::string_body> message{bhttp::int_to_status(response.status), version_};
  set_fields(message, common_fields());
  message.set(bhttp::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) message.set(name, value);
  message.keep_alive(keep_alive_);
  message.body() = std::move(response.body);
  message.prepare_payload();
  error_code error;
  stream_.expires_after(write_timeout);
  bhttp::response_serializer<bhttp::string_body> serializer{message};
  if (request_.method == "HEAD") {
    co_await bhttp::async_write_header(stream_, serializer, into(error));
  } else {
    co_await bhttp::async_write(stream_, serializer, into(error));
  }
  stream_.expires_never();
  if (error) {
    client_gone_ = true;
    throw boost::system::system_error(error);
  }
}

asio::awaitable<void> Connection::start_stream() {
  if (phase_ != Phase::unanswered) throw std::logic_error("the request was answered twice");
  phase_ = Phase::streaming;
  status_ = 200;
  if (version_ == 10 || context_.draining) keep_alive_ = false;
  bhttp::response<bhttp::empty_body> message{bhttp::status::ok, version_};
  set_fields(message, common_fields());
  message.set(bhttp::field::content_type, "text/event-stream");
  message.set(bhttp::field::cache_control, "no-cache");
  message.keep_alive(keep_alive_);
  if (version_ == 11) message.chunked(true);
  error_code error;
  stream_.expires_after(write_timeout);
  bhttp::response_serializer<bhttp::empty_body> serializer{message};
  co_await bhttp::async_write_header(stream_, serializer, into(error));
  stream_.expires_never();
  if (error) {
    client_gone_ = true;
    throw boost::system::system_error(error);
  }
}

asio::awaitable<void> Connection::send(std::string data) {
  error_code error;
  stream_.expires_after(write_timeout);
  if (version_ == 11) {
    co_await asio::async_write(stream_, bhttp::make_chunk(asio::buffer(data)), into(error));
  } else {
    co_await asio::async_write(stream_, asio::buffer(data), into(error));
  }
  stream_.expires_never();
  if (error) {
    client_gone_ = true;
    throw boost::system::system_error(error);
  }
}

asio::awaitable<void> Connection::finish_stream() {
  phase_ = Phase::answered;
  if (version_ == 10) co_return;
  error_code error;
  stream_.expires_after(write_timeout);
  co_await asio::async_write(stream_, bhttp::make_chunk_last(), into(error));
  stream_.expires_never();
  if (error) {
    client_gone_ = true;
    throw boost::system::system_error(error);
  }
}

/// Reads ahead while a request is answered, for one purpose: to notice that the client went away.
/// What a pipelining client sent is kept for the next request.
asio::awaitable<void> Connection::watch_client() {
  error_code error;
  while (!error) {
    if (buffer_.size() >= read_ahead_limit) {
      co_await stream_.socket().async_wait(asio::socket_base::wait_error, into(error));
      break;
    }
    const std::size_t bytes =
        co_await stream_.socket().async_read_some(buffer_.prepare(512), into(error));
    buffer_.commit(bytes);
  }
  if (error == asio::error::operation_aborted) co_return;
  client_gone_ = true;
  cancellation_.cancel();
}

/// Lets the client read the last answer: closing with unread input would reset the connection.
asio::awaitable<void> Connection::close_gently() {
  error_code error;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  stream_.expires_after(linger_timeout);
  buffer_.clear();
  while (!error) {
    co_await stream_.async_read_some(buffer_.prepare(4096), into(error));
  }
}

void Connection::record(steady_clock::time_point start) {
  if (!context_.observer) return;
  const bool unfinished = client_gone_ && phase_ != Phase::answered;
  context_.observer(
      {.method = request_.method,
       .route = route_,
       .status = unfinished ? client_closed_status : status_,
       .seconds = std::chrono::duration<double>(steady_clock::now() - start).count()});
}

}  // namespace espalier::server::http
