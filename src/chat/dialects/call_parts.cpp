#include "chat/dialects/call_parts.h"

#include <cctype>

#include "chat/literal.h"

namespace espalier::chat {
namespace {

constexpr std::size_t name_limit = 256;

bool is_name_byte(char byte) {
  static constexpr std::string_view marks = "_.-:/@$";
  const auto value = static_cast<unsigned char>(byte);
  return value >= 0x80 || std::isalnum(value) != 0 || marks.find(byte) != std::string_view::npos;
}

/// Passes on a string's text when it is a JSON object; else the string itself, as JSON.
class StringArguments {
 public:
  explicit StringArguments(MessageWriter& out) : out_(out) {}

  void push(std::string_view text) {
    if (object_) {
      out_.arguments(text);
      return;
    }
    held_ += text;
    const std::size_t first = held_.find_first_not_of(" \n\t\r");
    if (first == std::string::npos || held_[first] != '{') return;
    object_ = true;
    out_.arguments(held_);
  }

  /// Ends the string; one that was cut off stays without its end.
  void finish(bool whole) {
    if (object_) return;
    std::string json = json_string(held_);
    if (!whole) json.pop_back();
    out_.arguments(held_.empty() && whole ? "{}" : json);
  }

 private:
  MessageWriter& out_;
  bool object_ = false;
  std::string held_;
};

}  // namespace

Task<std::string> take_name(TextCursor& in) {
  std::string name;
  while (name.size() < name_limit) {
    const char byte = co_await in.peek();
    if (byte == '\0' || !is_name_byte(byte)) break;
    name += byte;
    in.advance(1);
  }
  co_return name;
}

Task<bool> write_arguments(ParseContext& context, const std::vector<std::string>& stops) {
  const char first = co_await context.in.peek();
  if (first == '"') {
    StringArguments arguments(context.out);
    const TextSink sink = [&arguments](std::string_view text) { arguments.push(text); };
    const bool whole = co_await copy_string(context.in, sink);
    arguments.finish(whole);
    co_return whole;
  }
  if (first == '{' || first == '[') {
    const TextSink sink = [&context](std::string_view text) { context.out.arguments(text); };
    const bool whole = co_await copy_literal(context.in, LiteralSyntax::json, stops, sink);
    co_return whole;
  }
  std::string value;
  const TextSink sink = [&value](std::string_view text) { value += text; };
  const bool whole = co_await copy_literal(context.in, LiteralSyntax::json, stops, sink);
  context.out.arguments(value == "null" ? "{}" : value);
  co_return whole;
}

Task<void> write_raw_arguments(ParseContext& context, const std::vector<std::string>& ends) {
  const TextSink sink = [&context](std::string_view text) { context.out.arguments(text); };
  co_await context.in.copy_until(ends, sink);
}

std::string member_start(std::string_view name, bool first) {
  std::string json(first ? "{" : ", ");
  json += json_string(name);
  json += ": ";
  return json;
}

Task<bool> take_fence(TextCursor& in) {
  const bool fence = co_await in.take("```");
  if (!fence) co_return false;
  co_await take_name(in);
  co_await in.take_space();
  co_return true;
}

}  // namespace espalier::chat
