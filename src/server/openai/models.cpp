#include <boost/asio/awaitable.hpp>

#include "server/openai/parameters.h"
#include "server/openai/routes.h"

namespace espalier::server::openai {
namespace {

namespace asio = boost::asio;

Json model_entry(const protocol::ServedModel& model) {
  const generation::ModelInfo& info = model.engine->info();
  return {{"id", model.alias},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "espalier"},
          {"context_window", info.context},
          {"meta",
           {{"family", info.family},
            {"n_vocab", info.vocabulary},
            {"n_ctx", info.context},
            {"n_ctx_train", info.trained_context},
            {"size", info.weight_bytes}}}};
}

asio::awaitable<void> handle_list(http::Exchange& exchange, const protocol::ModelSlot& slot) {
  const auto model = slot.get();
  const Json body = {{"object", "list"}, {"data", Json::array({model_entry(*model)})}};
  http::Response response{.body = protocol::dump(body)};
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> handle_one(http::Exchange& exchange, const protocol::ModelSlot& slot) {
  const auto model = slot.get();
  model->check_name(exchange.request().parameter);
  http::Response response{.body = protocol::dump(model_entry(*model))};
  co_await exchange.respond(std::move(response));
}

}  // namespace

http::Handler model_list_handler(const protocol::ModelSlot& slot) {
  return [&slot](http::Exchange& exchange) { return handle_list(exchange, slot); };
}

http::Handler model_handler(const protocol::ModelSlot& slot) {
  return [&slot](http::Exchange& exchange) { return handle_one(exchange, slot); };
}

}  // namespace espalier::server::openai
