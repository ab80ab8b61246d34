#include "chat/dialects/gemma_calls.h"

#include "chat/dialects/call_parts.h"
#include "chat/literal.h"

namespace espalier::chat {
namespace {

constexpr std::size_t longest_key = 256;

/// Writes one value of Gemma's notation as JSON.
class GemmaValue {
 public:
  explicit GemmaValue(ParseContext& context) : in_(context.in), out_(context.out) {}

  /// Reads an object with all it holds; false when it breaks off.
  Task<bool> parse() {
    while (true) {
      co_await in_.take_space();
      const char next = co_await in_.peek();
      if (next == '\0') co_return false;
      bool found = false;
      if (key_ && next != '}') {
        found = co_await parse_key();
      } else {
        found = co_await parse_part(next);
      }
      if (!found) co_return false;
      if (brackets_.empty()) co_return true;
    }
  }

 private:
  Task<bool> parse_part(char next) {
    bool found = co_await in_.at(quotes_.front());
    if (found) {
      found = co_await parse_string();
      co_return found;
    }
    if (next == '{' || next == '[') {
      brackets_ += next;
      key_ = next == '{';
      put(std::string_view(&next, 1));
      co_return true;
    }
    if (brackets_.empty()) co_return false;
    if (next == '}' || next == ']') {
      if (brackets_.back() != (next == '}' ? '{' : '[')) co_return false;
      brackets_.pop_back();
      key_ = false;
      put(std::string_view(&next, 1));
      co_return true;
    }
    if (next == ',') {
      key_ = brackets_.back() == '{';
      in_.advance(1);
      out_.arguments(", ");
      co_return true;
    }
    const TextSink sink = [this](std::string_view text) { out_.arguments(text); };
    found = co_await copy_literal(in_, LiteralSyntax::json, quotes_, sink);
    co_return found;
  }

  Task<bool> parse_string() {
    in_.advance(quotes_.front().size());
    out_.arguments("\"");
    const TextSink sink = [this](std::string_view text) {
      std::string json;
      append_escaped(text, json);
      out_.arguments(json);
    };
    const std::size_t end = co_await in_.copy_until(quotes_, sink);
    if (end == TextCursor::none) co_return false;
    put_mark();
    co_return true;
  }

  Task<bool> parse_key() {
    bool found = co_await in_.take(quotes_.front());
    std::string key;
    if (found) {
      found = co_await in_.read_until(quotes_.front(), longest_key, key);
      co_await in_.take_space();
      if (found) found = co_await in_.take(":");
    } else {
      const char next = co_await in_.peek();
      if (next == '"' || next == '\'') {
        found = co_await take_string(in_, key);
        co_await in_.take_space();
        if (found) found = co_await in_.take(":");
      } else {
        found = co_await in_.read_until(":", longest_key, key);
      }
    }
    if (!found) co_return false;
    out_.arguments(json_string(key) + ": ");
    key_ = false;
    co_return true;
  }

  void put(std::string_view bracket) {
    in_.advance(1);
    out_.arguments(bracket);
  }

  void put_mark() {
    in_.advance(quotes_.front().size());
    out_.arguments("\"");
  }

  inline static const std::vector<std::string> quotes_ = {"<|\"|>"};

  TextCursor& in_;
  MessageWriter& out_;
  std::string brackets_;
  bool key_ = false;
};

class Gemma4Calls : public CallSyntax {
 public:
  const std::vector<std::string>& openings() const override { return openings_; }

  Task<bool> parse(ParseContext& context, std::size_t) const override {
    TextCursor& in = context.in;
    co_await in.take_space();
    bool found = co_await in.take("call:");
    if (!found) co_return false;
    const std::string name = co_await take_name(in);
    if (name.empty()) co_return false;
    co_await in.take_space();
    const char next = co_await in.peek();
    if (next != '{' && !in.exhausted()) co_return false;
    context.out.begin_call(name, {});
    GemmaValue value(context);
    found = co_await value.parse();
    co_return true;
  }

 private:
  std::vector<std::string> openings_ = {"<|tool_call>"};
};

}  // namespace

std::shared_ptr<const CallSyntax> gemma4_calls() { return std::make_shared<Gemma4Calls>(); }

}  // namespace espalier::chat
