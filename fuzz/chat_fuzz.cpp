// Answers cut at every byte: what the pieces give is what the whole gives, and nothing fails.

#include <cstdlib>
#include <string>
#include <string_view>

#include "chat/response_parser.h"

namespace {

using namespace espalier::chat;

constexpr const char* tools = R"([{"type": "function", "function": {"name": "f", "parameters": {
  "type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "number"}, "o": {}}}}}])";

std::string describe(const ParsedMessage& message) {
  std::string text = message.content + '\0' + message.reasoning;
  for (const ToolCall& call : message.tool_calls) {
    text += '\0' + call.id + '\0' + call.name + '\0' + call.arguments;
  }
  return text;
}

std::string parse(const Dialect& dialect, bool open, std::string_view text, std::size_t piece) {
  ResponseParser parser(
      {.dialect = &dialect,
       .prompt_end = open && !dialect.reasoning.open.empty() ? dialect.reasoning.open.front() : "",
       .tools = ToolSet(tools)});
  ParsedMessage message;
  for (std::size_t i = 0; i < text.size(); i += piece) {
    apply_events(parser.feed(text.substr(i, piece)), message);
  }
  apply_events(parser.finish(), message);
  return describe(message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const Dialect& dialect = dialects()[data[0] % dialects().size()];
  const bool open = (data[1] & 1) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string whole = parse(dialect, open, text, size);
  if (parse(dialect, open, text, 1) != whole) std::abort();
  if (parse(dialect, open, text, 3) != whole) std::abort();
  return 0;
}
