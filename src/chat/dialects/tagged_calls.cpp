#include "chat/dialects/tagged_calls.h"

#include <algorithm>
#include <utility>

#include "chat/dialects/call_parts.h"
#include "chat/dialects/json_calls.h"
#include "chat/literal.h"

namespace espalier::chat {
namespace {

constexpr std::size_t key_limit = 256;

/// Whether the text between tags can be a parameter's name.
bool is_tag_key(std::string_view key) {
  return !key.empty() && key.find_first_of("\n<>\"") == std::string_view::npos;
}

class TaggedCalls : public CallSyntax {
 public:
  explicit TaggedCalls(TaggedCallForm form) : form_(std::move(form)), openings_(form_.sections) {
    if (!form_.function_open.empty()) openings_.push_back(form_.function_open);
    for (const std::string& end : form_.value_ends) {
      if (form_.line_around_value && !end.starts_with('\n')) ends_.push_back("\n" + end);
      ends_.push_back(end);
      cdata_ends_.push_back(std::string(cdata_close) + end);
    }
  }

  const std::vector<std::string>& openings() const override { return openings_; }

  Task<bool> parse(ParseContext& context, std::size_t opening) const override {
    TextCursor& in = context.in;
    bool found = false;
    if (opening < form_.sections.size()) {
      co_await in.take_space();
      const char next = co_await in.peek();
      if (next == '{' || next == '[') {  // models that know the JSON form use it at times
        found = co_await parse_json_calls(context, json_);
        co_return found;
      }
      if (!form_.function_open.empty()) {
        found = co_await in.at(form_.function_open);
        co_return found;
      }
    }
    found = co_await parse_function(context);
    co_return found;
  }

 private:
  Task<bool> parse_function(ParseContext& context) const {
    TextCursor& in = context.in;
    const std::string name = co_await take_name(in);
    if (name.empty()) co_return false;
    bool found = true;
    if (!form_.function_name_end.empty()) {
      found = co_await in.take(form_.function_name_end);
    } else {
      const std::size_t place = in.position();
      co_await in.take_space();
      const bool parameter = co_await in.at(form_.parameter_open);
      const bool end = co_await in.at(form_.function_close);
      found = parameter || end || in.exhausted();
      in.rewind(place);
    }
    if (!found) co_return false;
    context.out.begin_call(name, {});
    co_await parse_parameters(context, name);
    co_return true;
  }

  /// Writes the arguments; leaves the object open when the call is cut off or broken.
  Task<void> parse_parameters(ParseContext& context, const std::string& function) const {
    TextCursor& in = context.in;
    bool any = false;
    while (true) {
      std::size_t place = in.position();
      co_await in.take_space();
      bool found = co_await in.take(form_.parameter_open);
      if (!found) {
        found = co_await in.take(form_.function_close);
        if (found) context.out.arguments(any ? "}" : "{}");
        if (!found) in.rewind(place);
        co_return;
      }
      std::string key;
      found = co_await in.read_until(form_.parameter_name_end, key_limit, key);
      if (!found || !is_tag_key(trim(key))) {
        if (!found && in.exhausted()) co_return;
        in.rewind(place);
        co_return;
      }
      context.out.arguments(member_start(trim(key), !any));
      any = true;
      ValueTypes types = context.tools.types(function, trim(key));
      found = co_await parse_value_start(in, types);
      if (!found) co_return;
      found = co_await parse_value(context, types);
      if (!found) co_return;
    }
  }

  /// What stands between a key and its value.
  Task<bool> parse_value_start(TextCursor& in, ValueTypes& types) const {
    bool found = true;
    if (form_.attributes) {
      std::string attributes;
      found = co_await in.read_until(">", key_limit, attributes);
      if (attributes.find("string=\"true\"") != std::string::npos) {
        types = {.known = true, .string = true};
      } else if (attributes.find("string=\"false\"") != std::string::npos) {
        types = {};
      }
    }
    if (!form_.value_open.empty()) {
      co_await in.take_space();
      found = co_await in.take(form_.value_open);
    }
    co_return found;
  }

  Task<bool> parse_value(ParseContext& context, const ValueTypes& types) const {
    TextCursor& in = context.in;
    if (form_.line_around_value) co_await in.take("\n");
    if (!types.known || types.object || types.array) {
      const bool taken = co_await parse_structure(context, types);
      if (taken) co_return true;
    }
    const bool cdata = co_await in.take(cdata_open);
    const std::vector<std::string>& ends = cdata ? cdata_ends_ : ends_;
    const bool as_string = cdata || (types.known && types.only_string());
    std::string value;
    const TextSink sink = [&context, &value, as_string](std::string_view text) {
      if (!as_string) {
        value += text;
        return;
      }
      std::string json;
      append_escaped(text, json);
      context.out.arguments(json);
    };
    if (as_string) context.out.arguments("\"");
    const std::size_t end = co_await in.copy_until(ends, sink);
    if (end == TextCursor::none) {
      context.out.arguments(value);
      co_return false;
    }
    context.out.arguments(as_string ? "\"" : typed_json(value, types));
    if (ends[end].ends_with(form_.value_ends.front())) in.advance(ends[end].size());
    co_return true;
  }

  /// A whole object or array with the value's end behind it, which may also stand in its strings.
  /// False, nothing taken, when there is none.
  Task<bool> parse_structure(ParseContext& context, const ValueTypes& types) const {
    static const std::vector<std::string> no_stops;
    TextCursor& in = context.in;
    const std::size_t place = in.position();
    co_await in.take_space();
    const char first = co_await in.peek();
    std::string value;
    std::size_t end = TextCursor::none;
    if (first == '{' || first == '[') {
      const TextSink sink = [&value](std::string_view text) { value += text; };
      const bool whole = co_await copy_literal(in, LiteralSyntax::json, no_stops, sink);
      if (whole && nlohmann::json::accept(value)) {
        co_await in.take_space();
        end = co_await in.at_any(form_.value_ends);
      }
    }
    if (end != 0) {
      in.rewind(place);
      co_return false;
    }
    context.out.arguments(typed_json(value, types));
    in.advance(form_.value_ends.front().size());
    co_return true;
  }

  TaggedCallForm form_;
  JsonCallForm json_{.openings = {}};
  std::vector<std::string> openings_;
  std::vector<std::string> ends_;
  std::vector<std::string> cdata_ends_;
};

}  // namespace

std::shared_ptr<const CallSyntax> tagged_calls(TaggedCallForm form) {
  return std::make_shared<TaggedCalls>(std::move(form));
}

}  // namespace espalier::chat
