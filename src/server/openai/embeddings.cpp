#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/openai/embedding_parameters.h"
#include "server/openai/routes.h"

namespace espalier::server::openai {
namespace {

namespace asio = boost::asio;
using protocol::Json;
using protocol::ServedModel;

/// The bytes of little-endian f32 numbers in base64, as OpenAI sends embeddings.
std::string base64(const std::vector<float>& values) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(3, bytes.size() - i);
    unsigned word = 0;
    for (std::size_t j = 0; j < 3; ++j) word = word << 8 | (j < left ? bytes[i + j] : 0U);
    for (std::size_t j = 0; j < 4; ++j) {
      text += j <= left ? digits[word >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

generation::Embedder& require_embedder(const ServedModel& model) {
  if (!model.embedder) {
    throw base::RequestError(400, "unsupported_model",
                             "This model generates text; it gives no embeddings or scores.",
                             "model");
  }
  return *model.embedder;
}

Json usage(std::size_t tokens) { return {{"prompt_tokens", tokens}, {"total_tokens", tokens}}; }

std::string answer_embedding(const ServedModel& model, const std::string& body) {
  const EmbeddingRequest request = parse_embedding(protocol::parse_body(body));
  model.check_name(request.model);
  const auto result = require_embedder(model).embed(request.inputs);
  Json data = Json::array();
  for (std::size_t i = 0; i < result.vectors.size(); ++i) {
    const std::vector<float>& vector = result.vectors[i];
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", request.base64 ? Json(base64(vector)) : Json(vector)}});
  }
  return protocol::dump({{"object", "list"},
                         {"data", std::move(data)},
                         {"model", model.alias},
                         {"usage", usage(result.tokens)}});
}

std::string answer_rerank(const ServedModel& model, const std::string& body) {
  const RerankRequest request = parse_rerank(protocol::parse_body(body));
  model.check_name(request.model);
  generation::Embedder& embedder = require_embedder(model);
  if (embedder.info().dimensions != 1) {
    throw base::RequestError(400, "unsupported_model", "This model gives no relevance score.",
                             "model");
  }
  const auto result = embedder.score(request.query, request.documents);
  std::vector<std::size_t> order(result.vectors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return result.vectors[a][0] > result.vectors[b][0];
  });
  const auto wanted =
      static_cast<std::size_t>(request.most_results.value_or(static_cast<int>(order.size())));
  Json results = Json::array();
  for (std::size_t i = 0; i < std::min(wanted, order.size()); ++i) {
    const std::size_t index = order[i];
    Json entry = {{"index", index},
                  {"relevance_score", 1 / (1 + std::exp(-result.vectors[index][0]))}};
    if (request.return_documents) entry["document"] = {{"text", request.documents[index]}};
    results.push_back(std::move(entry));
  }
  return protocol::dump(
      {{"model", model.alias}, {"results", std::move(results)}, {"usage", usage(result.tokens)}});
}

using VectorAnswer = std::string (*)(const ServedModel& model, const std::string& body);

/// Always on a worker thread: the model computes meanwhile.
asio::awaitable<void> handle(http::Exchange& exchange, const protocol::ModelSlot& slot,
                             VectorAnswer answer) {
  const auto model = slot.get();
  http::Response response;
  auto run = [&]() -> asio::awaitable<std::string> {
    co_return answer(*model, exchange.request().body);
  };
  response.body = co_await asio::co_spawn(exchange.workers(), run(), asio::use_awaitable);
  co_await exchange.respond(std::move(response));
}

http::Handler vector_handler(const protocol::ModelSlot& slot, VectorAnswer answer) {
  return [&slot, answer](http::Exchange& exchange) { return handle(exchange, slot, answer); };
}

}  // namespace

http::Handler embedding_handler(const protocol::ModelSlot& slot) {
  return vector_handler(slot, answer_embedding);
}

http::Handler rerank_handler(const protocol::ModelSlot& slot) {
  return vector_handler(slot, answer_rerank);
}

}  // namespace espalier::server::openai
