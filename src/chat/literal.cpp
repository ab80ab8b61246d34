#include "chat/literal.h"

#include "chat/literal_scanner.h"

namespace espalier::chat {
namespace {

/// Whether one of `stops` comes after the white space that comes next; takes nothing.
Task<bool> stop_follows(TextCursor& in, const std::vector<std::string>& stops) {
  const std::size_t place = in.position();
  co_await in.take_space();
  const std::size_t stop = co_await in.at_any(stops);
  in.rewind(place);
  co_return stop != TextCursor::none;
}

}  // namespace

Task<bool> copy_literal(TextCursor& in, LiteralSyntax syntax, const std::vector<std::string>& stops,
                        const TextSink& sink) {
  LiteralScanner scanner(syntax);
  while (true) {
    std::string json;
    in.advance(scanner.read(in.rest(), json));
    if (!json.empty()) sink(json);
    switch (scanner.state()) {
      case LiteralScanner::State::done:
        co_return true;
      case LiteralScanner::State::failed:
        co_return false;
      case LiteralScanner::State::line_end: {
        const bool broken = co_await stop_follows(in, stops);
        if (broken) co_return false;
        scanner.accept_line_end();
        continue;
      }
      case LiteralScanner::State::running:
        break;
    }
    const bool grown = co_await in.more();
    if (!grown) break;
  }
  std::string json;
  scanner.finish(json);
  if (!json.empty()) sink(json);
  co_return scanner.state() == LiteralScanner::State::done;
}

Task<bool> copy_string(TextCursor& in, const TextSink& sink) {
  const char quote = co_await in.peek();
  if (quote != '"' && quote != '\'') co_return false;
  static const std::vector<std::string> no_stops;
  StringDecoder decoder;
  const TextSink decode = [&decoder, &sink](std::string_view piece) {
    std::string text;
    decoder.push(piece, text);
    if (!text.empty()) sink(text);
  };
  const bool whole = co_await copy_literal(in, LiteralSyntax::json, no_stops, decode);
  co_return whole;
}

Task<bool> take_string(TextCursor& in, std::string& text) {
  text.clear();
  const TextSink append = [&text](std::string_view piece) { text += piece; };
  const bool whole = co_await copy_string(in, append);
  co_return whole;
}

std::optional<std::string> literal_to_json(std::string_view text, LiteralSyntax syntax) {
  LiteralScanner scanner(syntax);
  std::string json;
  std::size_t taken = 0;
  while (taken < text.size()) {
    taken += scanner.read(text.substr(taken), json);
    if (scanner.state() == LiteralScanner::State::line_end) {
      scanner.accept_line_end();
    } else {
      break;
    }
  }
  if (scanner.state() == LiteralScanner::State::running) scanner.finish(json);
  if (scanner.state() != LiteralScanner::State::done || taken != text.size()) return std::nullopt;
  return json;
}

}  // namespace espalier::chat
