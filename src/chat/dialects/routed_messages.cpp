#include "chat/dialects/routed_messages.h"

#include "chat/dialects/call_parts.h"
#include "chat/literal.h"

namespace espalier::chat {
namespace {

constexpr std::size_t header_limit = 512;
constexpr std::string_view start_mark = "<|start|>";
constexpr std::string_view channel_mark = "<|channel|>";
constexpr std::string_view message_mark = "<|message|>";

/// What ends a part: the first three belong to it, the others begin the next one.
const std::vector<std::string> part_ends = {"<|end|>", "<|return|>", "<|call|>", "<|start|>",
                                            "<|channel|>"};
constexpr std::size_t own_ends = 3;

/// The word that follows `mark` in a header; empty when there is none.
std::string word_after(std::string_view header, std::string_view mark) {
  const std::size_t found = header.find(mark);
  if (found == std::string_view::npos) return {};
  header.remove_prefix(found + mark.size());
  return std::string(header.substr(0, header.find_first_of(" <\n\t")));
}

class HarmonyMessages : public MessageSyntax {
 public:
  Task<void> parse(ParseContext& context) const override {
    TextCursor& in = context.in;
    while (true) {
      const std::size_t place = in.position();
      co_await in.take_space();
      co_await in.peek();
      if (in.exhausted()) break;
      const std::size_t begin = co_await in.at_any(part_begins_);
      std::string header;
      bool routed = begin != TextCursor::none;
      if (routed) routed = co_await in.read_until(message_mark, header_limit, header);
      if (routed) {
        context.out.markup();
        co_await parse_part(context, header);
        context.out.markup();
        continue;
      }
      if (begin != TextCursor::none && in.exhausted()) break;  // cut off in a header
      in.rewind(place);
      if (begin != TextCursor::none) copy_begin(context, begin);
      co_await parse_text(context);
    }
  }

  std::string opened_by(std::string_view prompt_end) const override {
    const std::size_t start = prompt_end.rfind(start_mark);
    if (start == std::string_view::npos) return {};
    const std::string_view part = prompt_end.substr(start);
    const std::size_t channel = part.find(channel_mark);
    if (channel == std::string_view::npos) return {};
    const std::size_t message = part.find(message_mark);
    return std::string(
        message == std::string_view::npos ? part : part.substr(0, message + message_mark.size()));
  }

 private:
  /// A beginning of a header that does not go on as one is text.
  void copy_begin(ParseContext& context, std::size_t begin) const {
    context.out.content(part_begins_[begin]);
    context.in.advance(context.in.rest().find(part_begins_[begin]) + part_begins_[begin].size());
  }

  static Task<void> parse_text(ParseContext& context) {
    const TextSink sink = [&context](std::string_view text) { context.out.content(text); };
    const std::size_t end = co_await context.in.copy_until(part_ends, sink);
    if (end < own_ends) context.in.advance(part_ends[end].size());
  }

  static Task<void> parse_part(ParseContext& context, const std::string& header) {
    TextCursor& in = context.in;
    const std::string recipient = word_after(header, "to=");
    const std::string channel = word_after(header, channel_mark);
    static constexpr std::string_view functions = "functions.";
    if (recipient.starts_with(functions) || context.tools.find(recipient) != nullptr) {
      const bool prefixed = recipient.starts_with(functions);
      context.out.begin_call(recipient.substr(prefixed ? functions.size() : 0), {});
      co_await parse_arguments(context);
      context.out.end_call();
      co_return;
    }
    const bool reasoning = channel == "analysis" || !recipient.empty();
    const TextSink sink = [&context, reasoning](std::string_view text) {
      if (reasoning) {
        context.out.reasoning(text);
      } else {
        context.out.content(text);
      }
    };
    const std::size_t end = co_await in.copy_until(part_ends, sink);
    if (end < own_ends) in.advance(part_ends[end].size());
  }

  static Task<void> parse_arguments(ParseContext& context) {
    TextCursor& in = context.in;
    co_await in.take_space();
    const char next = co_await in.peek();
    const std::size_t empty = co_await in.at_any(part_ends);
    if (empty != TextCursor::none) {
      context.out.arguments("{}");
    } else if (next == '{' || next == '"') {
      co_await write_arguments(context, part_ends);
      co_await in.take_space();
    }
    // What is no JSON, or stands behind it, belongs to the message that the model wrote to the
    // function.
    co_await write_raw_arguments(context, part_ends);
    const std::size_t end = co_await in.at_any(part_ends);
    if (end < own_ends) in.advance(part_ends[end].size());
  }

  std::vector<std::string> part_begins_ = {"<|start|>", "<|channel|>", "to="};
};

class FunctionaryMessages : public MessageSyntax {
 public:
  Task<void> parse(ParseContext& context) const override {
    TextCursor& in = context.in;
    const TextSink content = [&context](std::string_view text) { context.out.content(text); };
    bool part = co_await parse_part(context);
    while (true) {
      const std::size_t mark = co_await in.copy_until(separators_, content);
      if (mark == TextCursor::none) break;
      in.advance(separators_[mark].size());
      const std::size_t place = in.position();
      part = co_await parse_part(context);
      if (part || in.exhausted()) continue;
      in.rewind(place);
      context.out.content(separators_[mark]);
    }
  }

  std::string opened_by(std::string_view) const override { return {}; }

 private:
  /// A recipient's line and, for a call, the arguments. Takes nothing when it is none.
  Task<bool> parse_part(ParseContext& context) const {
    TextCursor& in = context.in;
    const std::size_t place = in.position();
    const std::string name = co_await take_name(in);
    bool found = false;
    if (!name.empty()) found = co_await in.take("\n");
    if (found && name == "all") {
      context.out.markup();
      co_return true;
    }
    if (found) {
      co_await in.take_space();
      const char next = co_await in.peek();
      found = next == '{' || (context.tools.find(name) != nullptr && next != '\0');
    }
    if (!found) {
      in.rewind(place);
      co_return false;
    }
    context.out.markup();
    context.out.begin_call(name, {});
    const char next = co_await in.peek();
    if (next == '{') {
      co_await write_arguments(context, separators_);
      co_await in.take_space();
    } else {
      co_await parse_code(context, name);
    }
    context.out.end_call();
    context.out.markup();
    co_return true;
  }

  /// Code in place of JSON is the function's first argument.
  Task<void> parse_code(ParseContext& context, const std::string& name) const {
    const std::string parameter = context.tools.parameter_at(name, 0).value_or("code");
    context.out.arguments(member_start(parameter, true).append("\""));
    const TextSink sink = [&context](std::string_view text) {
      std::string json;
      append_escaped(text, json);
      context.out.arguments(json);
    };
    co_await context.in.copy_until(separators_, sink);
    context.out.arguments("\"}");
  }

  std::vector<std::string> separators_ = {">>>"};
};

}  // namespace

std::shared_ptr<const MessageSyntax> harmony_messages() {
  return std::make_shared<HarmonyMessages>();
}

std::shared_ptr<const MessageSyntax> functionary_messages() {
  return std::make_shared<FunctionaryMessages>();
}

}  // namespace espalier::chat
