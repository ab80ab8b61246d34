#include <memory>
#include <random>
#include <utility>

#include "chat/response_parser.h"
#include "server/openai/answer.h"
#include "server/openai/logprobs.h"
#include "server/openai/offload.h"
#include "server/openai/parameters.h"
#include "server/openai/routes.h"
#include "server/protocol/chat_answer.h"
#include "server/protocol/chat_prompt.h"
#include "server/protocol/request_template.h"
#include "server/protocol/structured_output.h"

namespace espalier::server::openai {
namespace {

namespace asio = boost::asio;
using chat::MessageEvent;
using chat::MessageEventKind;
using protocol::ServedModel;

/// The numbers of an answer's calls: with them no two calls of a conversation have the same id.
std::uint64_t first_call_number() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  return std::uniform_int_distribution<std::uint64_t>(0, 999'999'999'999)(generator);
}

/// Chat completions: the text of a choice is parsed into reasoning, content and calls.
class ChatFormat : public AnswerFormat {
 public:
  ChatFormat(const tokenizer::Tokenizer& tokenizer, bool logprobs, protocol::AnswerReading reading,
             int choices)
      : tokenizer_(tokenizer), logprobs_(logprobs), reading_(std::move(reading)) {
    for (int i = 0; i < choices; ++i) choices_.emplace_back(reading_.parser);
  }

  std::string whole_object() const override { return "chat.completion"; }
  std::string event_object() const override { return "chat.completion.chunk"; }
  std::string id_prefix() const override { return "chatcmpl-"; }

  Json opening(int choice) override {
    return entry(choice, {{"role", "assistant"}, {"content", ""}}, nullptr);
  }

  std::vector<Json> deltas(Piece piece, bool ends) override {
    Choice& choice = choices_[static_cast<std::size_t>(piece.choice)];
    for (auto& token : piece.tokens) choice.tokens.push_back(std::move(token));
    std::vector<MessageEvent> events = parse(choice, piece.text, ends);
    std::vector<Json> entries;
    for (MessageEvent& event : events) {
      Json delta = delta_of(event, choice);
      if (!delta.is_null()) entries.push_back(entry(piece.choice, std::move(delta), nullptr));
    }
    const bool waits = entries.empty() && !(ends && has_text_token(choice.tokens));
    if (!logprobs_ || waits) return entries;
    if (entries.empty()) entries.push_back(entry(piece.choice, {{"content", ""}}, nullptr));
    entries.front()["logprobs"] = chat_logprobs(std::exchange(choice.tokens, {}), tokenizer_);
    return entries;
  }

  Json closing(int choice, const std::string& finish_reason) override {
    return entry(choice, Json::object(), reason(choice, finish_reason));
  }

  Json whole(const Piece& piece, const std::string& finish_reason) override {
    Choice& choice = choices_[static_cast<std::size_t>(piece.choice)];
    chat::ParsedMessage parsed;
    apply_events(parse(choice, piece.text, true), parsed);
    Json message = {{"role", "assistant"}, {"content", parsed.content}, {"refusal", nullptr}};
    if (!parsed.reasoning.empty()) message["reasoning_content"] = parsed.reasoning;
    if (!parsed.tool_calls.empty()) {
      if (parsed.content.empty()) message["content"] = nullptr;
      message["tool_calls"] = Json::array();
    }
    for (std::size_t i = 0; i < parsed.tool_calls.size(); ++i) {
      const chat::ToolCall& call = parsed.tool_calls[i];
      message["tool_calls"].push_back(
          {{"id", choice.own_id[i] ? call.id : call_id(choice, i)},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return {{"index", piece.choice},
            {"message", std::move(message)},
            {"logprobs", logprobs_ ? chat_logprobs(piece.tokens, tokenizer_) : Json(nullptr)},
            {"finish_reason", reason(piece.choice, finish_reason)}};
  }

 private:
  struct Choice {
    explicit Choice(const chat::ParserOptions& options)
        : parser(std::make_unique<chat::ResponseParser>(options)) {}

    std::unique_ptr<chat::ResponseParser> parser;
    std::vector<generation::TokenEvent> tokens = {};  // not shown yet
    std::vector<bool> own_id = {};                    // for each call: the model gave it an id
    std::uint64_t first_call = first_call_number();
  };

  /// The events of a piece, without those of calls that are not wanted.
  std::vector<MessageEvent> parse(Choice& choice, std::string_view text, bool ends) const {
    std::vector<MessageEvent> events = choice.parser->feed(text);
    if (ends) {
      for (MessageEvent& event : choice.parser->finish()) events.push_back(std::move(event));
    }
    std::erase_if(
        events, [this](const MessageEvent& event) { return !reading_.parallel && event.call > 0; });
    for (const MessageEvent& event : events) {
      const bool own = !event.id.empty();
      if (event.kind == MessageEventKind::call_begin) choice.own_id.push_back(own);
      if (event.kind == MessageEventKind::call_end && own) choice.own_id[event.call] = true;
    }
    return events;
  }

  static std::string call_id(const Choice& choice, std::size_t call) {
    return "call_" + std::to_string(choice.first_call + call);
  }

  static Json delta_of(const MessageEvent& event, const Choice& choice) {
    const auto call = [&event](Json members) {
      members["index"] = event.call;
      return Json{{"tool_calls", Json::array({std::move(members)})}};
    };
    switch (event.kind) {
      case MessageEventKind::content:
        return {{"content", event.text}};
      case MessageEventKind::reasoning:
        return {{"reasoning_content", event.text}};
      case MessageEventKind::call_begin:
        return call({{"id", event.id.empty() ? call_id(choice, event.call) : event.id},
                     {"type", "function"},
                     {"function", {{"name", event.text}, {"arguments", ""}}}});
      case MessageEventKind::call_arguments:
        return call({{"function", {{"arguments", event.text}}}});
      case MessageEventKind::call_end:
        break;
    }
    return nullptr;
  }

  static Json entry(int choice, Json delta, Json finish_reason) {
    return {{"index", choice},
            {"delta", std::move(delta)},
            {"logprobs", nullptr},
            {"finish_reason", std::move(finish_reason)}};
  }

  /// An answer that the model ended with calls ended for them.
  std::string reason(int choice, const std::string& finish_reason) const {
    const bool calls = !choices_[static_cast<std::size_t>(choice)].own_id.empty();
    return calls && finish_reason == "stop" ? "tool_calls" : finish_reason;
  }

  const tokenizer::Tokenizer& tokenizer_;
  bool logprobs_;
  protocol::AnswerReading reading_;
  std::vector<Choice> choices_;
};

struct PreparedChat {
  protocol::PreparedRun run;
  StreamOptions streaming;
  bool logprobs = false;
  protocol::AnswerReading reading;
  std::string prompt_end;
  std::optional<int> reasoning_budget;
  protocol::ToolOptions tools;
};

/// `model` has the request's template.
PreparedChat prepare_chat(const ServedModel& model, ChatRequest request,
                          const base::CancellationToken& client_gone) {
  const auto pieces = protocol::render_chat(model, request.chat);
  std::string prompt = protocol::join_pieces(pieces);
  constexpr std::size_t end_length = 512;
  if (prompt.size() > end_length) prompt.erase(0, prompt.size() - end_length);
  PreparedChat prepared{
      .run = protocol::prepare_run(model, request.generation,
                                   {encode_pieces(*model.text.tokenizer, pieces, client_gone)}),
      .streaming = request.streaming,
      .logprobs = request.generation.logprobs >= 0,
      .reading = protocol::read_answers(model, request.chat.tools, prompt),
      .prompt_end = std::move(prompt),
      .reasoning_budget = request.reasoning_budget,
      .tools = std::move(request.chat.tools)};
  prepared.run.kept_special = model.markup_tokens;
  return prepared;
}

/// Grammars take some milliseconds to compile.
void compile_grammars(const ServedModel& model, PreparedChat& prepared) {
  protocol::add_call_grammar(model, prepared.tools, prepared.prompt_end, prepared.run);
  protocol::compile_grammar(model, prepared.run);
  if (prepared.reasoning_budget) {
    protocol::limit_reasoning(model, *prepared.reasoning_budget, prepared.prompt_end, prepared.run);
  }
}

bool has_grammar(const PreparedChat& prepared) {
  return prepared.run.constraint || prepared.reasoning_budget ||
         prepared.tools.choice == protocol::ToolChoice::required;
}

asio::awaitable<void> handle_chat(http::Exchange& exchange, const protocol::ModelSlot& slot) {
  auto model = slot.get();
  ChatRequest request = co_await offload(exchange, [&] {
    return parse_chat(protocol::parse_body(exchange.request().body), model->text.sampling_defaults);
  });
  model->check_name(request.generation.model);
  const bool foreign = protocol::is_template_source(request.chat.chat_template);
  const auto prepare = [&] {
    model = protocol::with_template(model, request.chat.chat_template);
    return prepare_chat(*model, std::move(request), exchange.client_gone());
  };
  PreparedChat prepared = co_await offload(exchange, prepare, foreign);
  if (has_grammar(prepared)) {
    co_await on_worker(exchange, [&] { compile_grammars(*model, prepared); });
  }
  protocol::GenerationRun run(model, std::move(prepared.run), co_await asio::this_coro::executor);
  ChatFormat format(*model->text.tokenizer, prepared.logprobs, std::move(prepared.reading),
                    run.choices());
  co_await answer(exchange, run, format, prepared.streaming);
}

}  // namespace

http::Handler chat_handler(const protocol::ModelSlot& slot) {
  return [&slot](http::Exchange& exchange) { return handle_chat(exchange, slot); };
}

}  // namespace espalier::server::openai
