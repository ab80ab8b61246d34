#include "server/openai/answer.h"
#include "server/openai/logprobs.h"
#include "server/openai/offload.h"
#include "server/openai/parameters.h"
#include "server/openai/routes.h"
#include "server/protocol/chat_prompt.h"

namespace espalier::server::openai {
namespace {

namespace asio = boost::asio;
using protocol::ServedModel;

class ChatFormat : public AnswerFormat {
 public:
  ChatFormat(const tokenizer::Tokenizer& tokenizer, bool logprobs)
      : tokenizer_(tokenizer), logprobs_(logprobs) {}

  std::string whole_object() const override { return "chat.completion"; }
  std::string event_object() const override { return "chat.completion.chunk"; }
  std::string id_prefix() const override { return "chatcmpl-"; }

  Json opening(int choice) override {
    return {{"index", choice},
            {"delta", {{"role", "assistant"}, {"content", ""}}},
            {"logprobs", nullptr},
            {"finish_reason", nullptr}};
  }

  Json delta(const Piece& piece) override {
    return {{"index", piece.choice},
            {"delta", {{"content", piece.text}}},
            {"logprobs", logprobs(piece)},
            {"finish_reason", nullptr}};
  }

  Json closing(int choice, const std::string& finish_reason) override {
    return {{"index", choice},
            {"delta", Json::object()},
            {"logprobs", nullptr},
            {"finish_reason", finish_reason}};
  }

  Json whole(const Piece& piece, const std::string& finish_reason) override {
    return {{"index", piece.choice},
            {"message", {{"role", "assistant"}, {"content", piece.text}, {"refusal", nullptr}}},
            {"logprobs", logprobs(piece)},
            {"finish_reason", finish_reason}};
  }

 private:
  Json logprobs(const Piece& piece) const {
    return logprobs_ ? chat_logprobs(piece.tokens, tokenizer_) : Json(nullptr);
  }

  const tokenizer::Tokenizer& tokenizer_;
  bool logprobs_;
};

struct PreparedChat {
  protocol::PreparedRun run;
  StreamOptions streaming;
  bool logprobs = false;
};

PreparedChat prepare_chat(const ServedModel& model, const std::string& body) {
  const ChatRequest request = parse_chat(protocol::parse_body(body), model.text.sampling_defaults);
  model.check_name(request.generation.model);
  const auto pieces = protocol::render_chat(model, request.chat);
  return {.run = protocol::prepare_run(model, request.generation,
                                       {encode_pieces(*model.text.tokenizer, pieces)}),
          .streaming = request.streaming,
          .logprobs = request.generation.logprobs >= 0};
}

asio::awaitable<void> handle_chat(http::Exchange& exchange, const protocol::ModelSlot& slot) {
  const auto model = slot.get();
  PreparedChat prepared =
      co_await offload(exchange, [&] { return prepare_chat(*model, exchange.request().body); });
  protocol::GenerationRun run(model, std::move(prepared.run), co_await asio::this_coro::executor);
  ChatFormat format(*model->text.tokenizer, prepared.logprobs);
  co_await answer(exchange, run, format, prepared.streaming);
}

}  // namespace

http::Handler chat_handler(const protocol::ModelSlot& slot) {
  return [&slot](http::Exchange& exchange) { return handle_chat(exchange, slot); };
}

}  // namespace espalier::server::openai
