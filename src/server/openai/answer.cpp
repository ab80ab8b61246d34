#include "server/openai/answer.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <utility>

namespace espalier::server::openai {
namespace {

namespace asio = boost::asio;
using generation::FinishReason;
using protocol::ChoiceEvent;
using protocol::dump;
using protocol::GenerationRun;

// Without a byte for so long, proxies and clients give a stream up.
constexpr auto keep_alive_interval = std::chrono::seconds(15);

std::string random_id(const std::string& prefix) {
  static constexpr std::string_view alphabet =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  std::uniform_int_distribution<std::size_t> pick(0, alphabet.size() - 1);
  std::string id = prefix;
  for (int i = 0; i < 24; ++i) id += alphabet[pick(generator)];
  return id;
}

std::string finish_reason_name(FinishReason reason) {
  return reason == FinishReason::length ? "length" : "stop";
}

Json usage(const GenerationRun& run) {
  return {{"prompt_tokens", run.prompt_tokens()},
          {"completion_tokens", run.completion_tokens()},
          {"total_tokens", run.prompt_tokens() + run.completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", 0}}}};
}

Json envelope(const GenerationRun& run, std::string id, std::string object) {
  return {{"id", std::move(id)},
          {"object", std::move(object)},
          {"created", std::time(nullptr)},
          {"model", run.model().alias},
          {"system_fingerprint", "espalier"},
          {"choices", Json::array()}};
}

asio::awaitable<void> answer_whole(http::Exchange& exchange, GenerationRun& run,
                                   AnswerFormat& format) {
  std::vector<Piece> pieces(static_cast<std::size_t>(run.choices()));
  std::vector<std::string> reasons(pieces.size());
  while (!run.finished()) {
    std::vector<ChoiceEvent> events = co_await run.next(keep_alive_interval);
    for (ChoiceEvent& arrived : events) {
      Piece& piece = pieces[static_cast<std::size_t>(arrived.choice)];
      piece.choice = arrived.choice;
      piece.text += arrived.event.text;
      for (auto& token : arrived.event.tokens) piece.tokens.push_back(std::move(token));
      reasons[static_cast<std::size_t>(arrived.choice)] = finish_reason_name(arrived.event.finish);
    }
  }
  Json body = envelope(run, random_id(format.id_prefix()), format.whole_object());
  for (const Piece& piece : pieces) {
    body["choices"].push_back(format.whole(piece, reasons[static_cast<std::size_t>(piece.choice)]));
  }
  body["usage"] = usage(run);
  http::Response response{.body = dump(body)};
  co_await exchange.respond(std::move(response));
}

/// Builds the events of one stream. Tokens whose text is still held back wait for the next piece.
class EventWriter {
 public:
  EventWriter(const GenerationRun& run, AnswerFormat& format, bool include_usage)
      : run_(run),
        format_(format),
        event_(envelope(run, random_id(format.id_prefix()), format.event_object())),
        pending_(static_cast<std::size_t>(run.choices())) {
    if (include_usage) event_["usage"] = nullptr;
  }

  std::string open() {
    std::string data;
    for (int choice = 0; choice < run_.choices(); ++choice) {
      const Json entry = format_.opening(choice);
      if (!entry.is_null()) data += event(entry);
    }
    return data;
  }

  std::string write(ChoiceEvent arrived) {
    Piece& piece = pending_[static_cast<std::size_t>(arrived.choice)];
    piece.choice = arrived.choice;
    piece.text += arrived.event.text;
    for (auto& token : arrived.event.tokens) piece.tokens.push_back(std::move(token));
    std::string data;
    const bool ends = arrived.event.finish != FinishReason::none;
    if (!piece.text.empty() || ends) {
      for (Json& entry : format_.deltas(std::exchange(piece, {}), ends)) {
        data += event(std::move(entry));
      }
    }
    if (ends) {
      data += event(format_.closing(arrived.choice, finish_reason_name(arrived.event.finish)));
    }
    return data;
  }

  std::string close() {
    std::string data;
    if (event_.contains("usage")) {
      event_["choices"] = Json::array();
      event_["usage"] = usage(run_);
      data += "data: " + dump(event_) + "\n\n";
    }
    return data + "data: [DONE]\n\n";
  }

 private:
  std::string event(Json entry) {
    event_["choices"] = Json::array({std::move(entry)});
    return "data: " + dump(event_) + "\n\n";
  }

  const GenerationRun& run_;
  AnswerFormat& format_;
  Json event_;
  std::vector<Piece> pending_;
};

asio::awaitable<void> answer_stream(http::Exchange& exchange, GenerationRun& run,
                                    AnswerFormat& format, bool include_usage) {
  EventWriter writer(run, format, include_usage);
  co_await exchange.start_stream();
  std::string data = writer.open();
  while (!run.finished()) {
    if (!data.empty()) co_await exchange.send(std::move(data));
    data.clear();
    std::vector<ChoiceEvent> events = co_await run.next(keep_alive_interval);
    if (events.empty()) data = ": waiting\n\n";
    for (ChoiceEvent& arrived : events) data += writer.write(std::move(arrived));
  }
  data += writer.close();
  co_await exchange.send(std::move(data));
  co_await exchange.finish_stream();
}

}  // namespace

bool has_text_token(const std::vector<generation::TokenEvent>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](const auto& event) {
    return event.token.has_value() && event.finish != FinishReason::stop;
  });
}

asio::awaitable<void> answer(http::Exchange& exchange, GenerationRun& run, AnswerFormat& format,
                             const StreamOptions& streaming) {
  if (streaming.stream) {
    co_await answer_stream(exchange, run, format, streaming.include_usage);
  } else {
    co_await answer_whole(exchange, run, format);
  }
}

}  // namespace espalier::server::openai
