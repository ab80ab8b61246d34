#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/dialect.h"
#include "chat/message_event.h"

namespace espalier::chat {

/// What a parser must know of the request.
struct ParserOptions {
  const Dialect* dialect = nullptr;  // null: only the reasoning is parted from the text
  bool calls = true;                 // unset: no tools are offered, markup of calls is text
  ReasoningMarks reasoning = {};     // empty: the dialect's own
  std::string prompt_end = {};       // the prompt may have opened the reasoning already
  ToolSet tools = {};
};

/// Parses a model's answer while it is written: reasoning, text, tool calls. What it says does not
/// depend on how the text is cut into pieces. Never throws for any text, loses none of it except
/// markup. Single-threaded.
class ResponseParser {
 public:
  explicit ResponseParser(ParserOptions options);
  ~ResponseParser();
  ResponseParser(const ResponseParser&) = delete;
  ResponseParser& operator=(const ResponseParser&) = delete;

  std::vector<MessageEvent> feed(std::string_view text);
  std::vector<MessageEvent> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A whole answer at once.
ParsedMessage parse_response(ParserOptions options, std::string_view text);

/// Whether a prompt that ends so has opened the reasoning.
bool opens_reasoning(std::string_view prompt_end, const ReasoningMarks& reasoning);

}  // namespace espalier::chat
