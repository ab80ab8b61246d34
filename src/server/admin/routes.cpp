#include "server/admin/routes.h"

#include <utility>

#include <boost/asio/awaitable.hpp>

namespace espalier::server::admin {
namespace {

namespace asio = boost::asio;

asio::awaitable<void> handle_health(http::Exchange& exchange, const protocol::ModelSlot& slot) {
  http::Response response;
  if (slot.find()) {
    response.body = R"({"status":"ok"})";
  } else {
    response.status = 503;
    response.body = R"({"status":"loading"})";
    response.headers.emplace_back("Retry-After", "1");
  }
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> handle_metrics(http::Exchange& exchange, const protocol::ModelSlot& slot,
                                     const RequestMetrics& metrics) {
  http::Response response;
  response.body = metrics.serialize(slot.find().get());
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  co_await exchange.respond(std::move(response));
}

}  // namespace

void add_routes(http::Router& router, const protocol::ModelSlot& slot,
                const RequestMetrics& metrics) {
  for (const char* path : {"/health", "/v1/health"}) {
    router.add("GET", path,
               [&slot](http::Exchange& exchange) { return handle_health(exchange, slot); });
  }
  router.add("GET", "/metrics", [&slot, &metrics](http::Exchange& exchange) {
    return handle_metrics(exchange, slot, metrics);
  });
}

}  // namespace espalier::server::admin
