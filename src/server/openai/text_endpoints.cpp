#include <optional>

#include "server/openai/offload.h"
#include "server/openai/parameters.h"
#include "server/openai/routes.h"
#include "server/openai/text_parameters.h"
#include "server/protocol/chat_prompt.h"
#include "server/protocol/request_template.h"

namespace espalier::server::openai {
namespace {

namespace asio = boost::asio;
using protocol::ServedModel;
using tokenizer::SpecialTokens;
using tokenizer::TokenId;
using tokenizer::Tokenizer;

std::vector<TokenId> tokenize(const Tokenizer& tokenizer, const TokenizeRequest& request) {
  if (request.parse_special) {
    return tokenizer.encode(request.content,
                            request.add_special ? SpecialTokens::add : SpecialTokens::recognise);
  }
  std::vector<TokenId> ids = tokenizer.encode(request.content, SpecialTokens::literal);
  if (!request.add_special) return ids;
  const auto affix = tokenizer.encode("", SpecialTokens::add);
  if (affix.empty()) return ids;
  if (affix.size() > 1 || affix.front() != tokenizer.bos()) {
    throw base::RequestError(400, "unsupported_parameter",
                             "'add_special' without 'parse_special' is not supported for this "
                             "model's tokenizer.",
                             "add_special");
  }
  ids.insert(ids.begin(), affix.front());
  return ids;
}

bool is_utf8(const std::string& bytes) {
  try {
    (void)Json(bytes).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

/// A token's bytes as a string, or as an array of numbers when they are no whole characters.
Json piece_json(const std::string& bytes) {
  if (is_utf8(bytes)) return bytes;
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return numbers;
}

std::string answer_tokenize(const ServedModel& model, const std::string& body) {
  const TokenizeRequest request = parse_tokenize(protocol::parse_body(body));
  model.check_name(request.model);
  const Tokenizer& tokenizer = *model.text.tokenizer;
  Json tokens = Json::array();
  for (const TokenId id : tokenize(tokenizer, request)) {
    if (request.with_pieces) {
      tokens.push_back({{"id", id}, {"piece", piece_json(tokenizer.token_bytes(id))}});
    } else {
      tokens.push_back(id);
    }
  }
  return protocol::dump({{"tokens", std::move(tokens)}});
}

std::string answer_detokenize(const ServedModel& model, const std::string& body) {
  const DetokenizeRequest request = parse_detokenize(protocol::parse_body(body));
  model.check_name(request.model);
  const Tokenizer& tokenizer = *model.text.tokenizer;
  for (const TokenId id : request.tokens) {
    if (id >= tokenizer.vocabulary_size()) {
      throw base::RequestError(400, "invalid_value",
                               "'tokens' holds " + std::to_string(id) +
                                   ", but the vocabulary ends before " +
                                   std::to_string(tokenizer.vocabulary_size()) + ".",
                               "tokens");
    }
  }
  return protocol::dump({{"content", tokenizer.decode(request.tokens, false)}});
}

std::string answer_template(const std::shared_ptr<const ServedModel>& model,
                            const TemplateRequest& request) {
  model->check_name(request.model);
  const auto chosen = protocol::with_template(model, request.chat.chat_template);
  return protocol::dump(
      {{"prompt", protocol::join_pieces(protocol::render_chat(*chosen, request.chat))}});
}

asio::awaitable<void> handle_template(http::Exchange& exchange, const protocol::ModelSlot& slot) {
  const auto model = slot.get();
  const TemplateRequest request = co_await offload(exchange, [&exchange] {
    return parse_template_request(protocol::parse_body(exchange.request().body));
  });
  http::Response response;
  const bool foreign = protocol::is_template_source(request.chat.chat_template);
  response.body = co_await offload(
      exchange, [&] { return answer_template(model, request); }, foreign);
  co_await exchange.respond(std::move(response));
}

using TextAnswer = std::string (*)(const ServedModel& model, const std::string& body);

asio::awaitable<void> handle_text(http::Exchange& exchange, const protocol::ModelSlot& slot,
                                  TextAnswer text_answer) {
  const auto model = slot.get();
  http::Response response;
  response.body =
      co_await offload(exchange, [&] { return text_answer(*model, exchange.request().body); });
  co_await exchange.respond(std::move(response));
}

http::Handler text_handler(const protocol::ModelSlot& slot, TextAnswer text_answer) {
  return [&slot, text_answer](http::Exchange& exchange) {
    return handle_text(exchange, slot, text_answer);
  };
}

}  // namespace

http::Handler tokenize_handler(const protocol::ModelSlot& slot) {
  return text_handler(slot, answer_tokenize);
}

http::Handler detokenize_handler(const protocol::ModelSlot& slot) {
  return text_handler(slot, answer_detokenize);
}

http::Handler template_handler(const protocol::ModelSlot& slot) {
  return [&slot](http::Exchange& exchange) { return handle_template(exchange, slot); };
}

}  // namespace espalier::server::openai
