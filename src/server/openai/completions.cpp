#include "server/openai/answer.h"
#include "server/openai/logprobs.h"
#include "server/openai/offload.h"
#include "server/openai/parameters.h"
#include "server/openai/routes.h"
#include "server/protocol/structured_output.h"

namespace espalier::server::openai {
namespace {

namespace asio = boost::asio;
using protocol::ServedModel;
using tokenizer::TokenId;

/// `echoes` holds, for each choice, the prompt's text that goes before the answer; empty without
/// `echo`.
class CompletionFormat : public AnswerFormat {
 public:
  CompletionFormat(const tokenizer::Tokenizer& tokenizer, bool logprobs,
                   std::vector<std::string> echoes)
      : tokenizer_(tokenizer), logprobs_(logprobs), echoes_(std::move(echoes)) {}

  std::string whole_object() const override { return "text_completion"; }
  std::string event_object() const override { return "text_completion"; }
  std::string id_prefix() const override { return "cmpl-"; }

  Json opening(int choice) override {
    if (echo(choice).empty()) return nullptr;
    return entry(choice, echo(choice), nullptr, nullptr);
  }

  std::vector<Json> deltas(Piece piece, bool) override {
    if (piece.text.empty() && !has_text_token(piece.tokens)) return {};
    return {entry(piece.choice, piece.text, logprobs(piece), nullptr)};
  }

  Json closing(int choice, const std::string& finish_reason) override {
    return entry(choice, "", nullptr, finish_reason);
  }

  Json whole(const Piece& piece, const std::string& finish_reason) override {
    return entry(piece.choice, echo(piece.choice) + piece.text, logprobs(piece), finish_reason);
  }

 private:
  static Json entry(int choice, const std::string& text, Json logprobs, Json finish_reason) {
    return {{"index", choice},
            {"text", text},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish_reason)}};
  }

  std::string echo(int choice) const {
    return echoes_.empty() ? "" : echoes_[static_cast<std::size_t>(choice)];
  }

  Json logprobs(const Piece& piece) {
    if (!logprobs_) return nullptr;
    offsets_.resize(std::max(offsets_.size(), static_cast<std::size_t>(piece.choice) + 1));
    return completion_logprobs(piece.tokens, tokenizer_,
                               offsets_[static_cast<std::size_t>(piece.choice)]);
  }

  const tokenizer::Tokenizer& tokenizer_;
  bool logprobs_;
  std::vector<std::string> echoes_;
  std::vector<std::size_t> offsets_;
};

struct PreparedCompletion {
  protocol::PreparedRun run;
  StreamOptions streaming;
  bool logprobs = false;
  std::vector<std::string> echoes;
};

PreparedCompletion prepare_completion(const ServedModel& model, const std::string& body,
                                      const base::CancellationToken& client_gone) {
  const CompletionRequest request =
      parse_completion(protocol::parse_body(body), model.text.sampling_defaults);
  model.check_name(request.generation.model);
  const tokenizer::Tokenizer& tokenizer = *model.text.tokenizer;
  PreparedCompletion prepared{.run = {},
                              .streaming = request.streaming,
                              .logprobs = request.generation.logprobs >= 0,
                              .echoes = {}};
  std::vector<std::vector<TokenId>> prompts;
  for (const Prompt& prompt : request.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      prompts.push_back(tokenizer.encode_prompt(
          *text, {.special = tokenizer::SpecialTokens::add, .cancellation = client_gone}));
    } else {
      prompts.push_back(std::get<std::vector<TokenId>>(prompt));
    }
    if (!request.echo) continue;
    const auto* text = std::get_if<std::string>(&prompt);
    prepared.echoes.insert(prepared.echoes.end(),
                           static_cast<std::size_t>(request.generation.choices),
                           text ? *text : tokenizer.decode(prompts.back(), false));
  }
  prepared.run = protocol::prepare_run(model, request.generation, prompts);
  return prepared;
}

asio::awaitable<void> handle_completion(http::Exchange& exchange, const protocol::ModelSlot& slot) {
  const auto model = slot.get();
  PreparedCompletion prepared = co_await offload(exchange, [&] {
    return prepare_completion(*model, exchange.request().body, exchange.client_gone());
  });
  if (prepared.run.constraint) {
    co_await on_worker(exchange, [&] { protocol::compile_grammar(*model, prepared.run); });
  }
  protocol::GenerationRun run(model, std::move(prepared.run), co_await asio::this_coro::executor);
  CompletionFormat format(*model->text.tokenizer, prepared.logprobs, std::move(prepared.echoes));
  co_await answer(exchange, run, format, prepared.streaming);
}

}  // namespace

http::Handler completion_handler(const protocol::ModelSlot& slot) {
  return [&slot](http::Exchange& exchange) { return handle_completion(exchange, slot); };
}

}  // namespace espalier::server::openai
