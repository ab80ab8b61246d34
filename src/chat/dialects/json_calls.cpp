#include "chat/dialects/json_calls.h"

#include <algorithm>
#include <utility>

#include "chat/dialects/call_parts.h"
#include "chat/literal.h"

namespace espalier::chat {
namespace {

bool contains(const std::vector<std::string>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// What is known of the object that is being read.
struct CallObject {
  bool strict = false;  // without an opening: only what cannot be another object is a call
  std::string name = {};
  std::string id = {};
  std::optional<std::string> early_arguments = {};  // they came before the name
  bool silent = false;
  bool begun = false;
  bool has_arguments = false;
};

void begin(ParseContext& context, const JsonCallForm& form, CallObject& call) {
  call.begun = true;
  call.silent = contains(form.silent, call.name) && context.tools.find(call.name) == nullptr;
  if (!call.silent) context.out.begin_call(call.name, std::exchange(call.id, {}));
}

void end(ParseContext& context, const CallObject& call) {
  if (!call.silent) context.out.end_call(call.id);
}

Task<bool> skip_value(TextCursor& in, std::string& json) {
  static const std::vector<std::string> no_stops;
  const TextSink sink = [&json](std::string_view text) { json += text; };
  const bool whole = co_await copy_literal(in, LiteralSyntax::json, no_stops, sink);
  co_return whole;
}

Task<bool> parse_arguments(ParseContext& context, const JsonCallForm& form, CallObject& call) {
  bool whole = false;
  call.has_arguments = true;
  if (call.name.empty() || call.silent) {
    call.early_arguments.emplace();
    whole = co_await skip_value(context.in, *call.early_arguments);
    co_return whole;
  }
  const char first = co_await context.in.peek();
  if (call.strict && first != '{') co_return false;
  begin(context, form, call);
  if (call.silent) {
    std::string dropped;
    whole = co_await skip_value(context.in, dropped);
  } else {
    whole = co_await write_arguments(context, form.stops);
  }
  co_return whole;
}

Task<bool> parse_members(ParseContext& context, const JsonCallForm& form, CallObject& call,
                         bool nested);

Task<bool> parse_member(ParseContext& context, const JsonCallForm& form, CallObject& call,
                        const std::string& key, bool nested) {
  TextCursor& in = context.in;
  const char first = co_await in.peek();
  bool whole = false;
  if (!call.begun && contains(form.argument_keys, key)) {
    whole = co_await parse_arguments(context, form, call);
  } else if (contains(form.name_keys, key) && call.name.empty()) {
    whole = co_await take_string(in, call.name);
    whole = whole && !call.name.empty();
  } else if (key == "function" && first == '{' && !nested) {
    whole = co_await parse_members(context, form, call, true);
  } else if (key == "function" && first == '"' && call.name.empty()) {
    whole = co_await take_string(in, call.name);
  } else if (contains(form.id_keys, key) && first == '"') {
    whole = co_await take_string(in, call.id);
  } else if (contains(form.id_keys, key)) {
    call.id.clear();
    whole = co_await skip_value(in, call.id);
  } else if (call.strict && !call.begun && key != "type") {
    co_return false;
  } else {
    std::string dropped;
    whole = co_await skip_value(in, dropped);
  }
  co_return whole;
}

/// From the opening brace to the closing one.
Task<bool> parse_members(ParseContext& context, const JsonCallForm& form, CallObject& call,
                         bool nested) {
  TextCursor& in = context.in;
  bool found = co_await in.take("{");
  if (!found) co_return false;
  while (true) {
    co_await in.take_space();
    const char next = co_await in.peek();
    if (next == '}' || next == ',') {
      in.advance(1);
      if (next == '}') co_return true;
      continue;
    }
    std::string key;
    found = co_await take_string(in, key);
    if (!found) co_return false;
    co_await in.take_space();
    found = co_await in.take(":");
    if (!found) co_return false;
    co_await in.take_space();
    found = co_await parse_member(context, form, call, key, nested);
    if (!found) co_return false;
  }
}

/// One object. False: it is no call; `broken` says that it was one and ended in the middle.
Task<bool> parse_object(ParseContext& context, const JsonCallForm& form, bool strict,
                        bool& broken) {
  CallObject call{.strict = strict};
  const std::size_t start = context.in.position();
  const bool whole = co_await parse_members(context, form, call, false);
  if (!whole && !call.begun) {
    const bool cut = context.in.exhausted();
    if (!cut) context.in.rewind(start);
    co_return false;
  }
  if (!call.begun && (call.name.empty() || (strict && !call.has_arguments))) {
    context.in.rewind(start);
    co_return false;
  }
  broken = !whole;
  if (!call.begun) {
    begin(context, form, call);
    if (!call.silent) context.out.arguments(call.early_arguments.value_or("{}"));
  }
  end(context, call);
  co_return true;
}

/// The objects of an array, or those that follow one another, up to the first thing that is none.
Task<bool> parse_objects(ParseContext& context, const JsonCallForm& form, bool array, bool strict) {
  TextCursor& in = context.in;
  bool any = false;
  while (true) {
    std::size_t place = in.position();
    co_await in.take_space();
    char next = co_await in.peek();
    if (any && (next == ',' || next == ';')) {
      in.advance(1);
      co_await in.take_space();
      next = co_await in.peek();
    }
    if (array && any && next == ']') {
      in.advance(1);
      co_return true;
    }
    if (next != '{') {
      in.rewind(place);
      co_return any;
    }
    bool broken = false;
    const bool call = co_await parse_object(context, form, strict, broken);
    if (!call && any && !in.exhausted()) in.rewind(place);
    if (!call || broken) co_return any || call;
    any = true;
  }
}

class JsonCalls : public CallSyntax {
 public:
  explicit JsonCalls(JsonCallForm form) : form_(std::move(form)) {}

  const std::vector<std::string>& openings() const override { return form_.openings; }
  bool has_bare() const override { return form_.bare || form_.bare_array; }

  Task<bool> parse(ParseContext& context, std::size_t) const override {
    return parse_json_calls(context, form_);
  }

  Task<bool> parse_bare(ParseContext& context) const override {
    const char next = co_await context.in.peek();
    const bool array = next == '[' && form_.bare_array;
    if (!array && !(next == '{' && form_.bare) && !(next == ';' && context.out.calls() > 0)) {
      co_return false;
    }
    if (next != '{') context.in.advance(1);
    const bool found = co_await parse_objects(context, form_, array, true);
    co_return found;
  }

 private:
  JsonCallForm form_;
};

}  // namespace

Task<bool> parse_json_calls(ParseContext& context, const JsonCallForm& form) {
  TextCursor& in = context.in;
  co_await in.take_space();
  const bool fenced = co_await take_fence(in);
  const bool array = co_await in.take("[");
  const bool found = co_await parse_objects(context, form, array, false);
  if (found && fenced) {
    co_await in.take_space();
    co_await in.take("```");
  }
  co_return found;
}

std::shared_ptr<const CallSyntax> json_calls(JsonCallForm form) {
  return std::make_shared<JsonCalls>(std::move(form));
}

}  // namespace espalier::chat
