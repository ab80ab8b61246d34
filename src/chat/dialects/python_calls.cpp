#include "chat/dialects/python_calls.h"

#include <utility>

#include "chat/dialects/call_parts.h"
#include "chat/dialects/json_calls.h"
#include "chat/literal.h"

namespace espalier::chat {
namespace {

constexpr std::string_view call_method = ".call";

enum class CallEnd { none, whole, broken };

/// Takes `NAME =`, the beginning of a keyword argument; takes nothing when it is none.
Task<bool> take_keyword(TextCursor& in, std::string& keyword) {
  const std::size_t place = in.position();
  keyword = co_await take_name(in);
  co_await in.take_space();
  bool found = false;
  if (!keyword.empty()) found = co_await in.take("=");
  if (found) {
    const char next = co_await in.peek();
    found = next != '=';
  }
  if (!found) in.rewind(place);
  co_return found;
}

/// The name of the next argument; empty when none can be told.
Task<std::string> take_argument_name(ParseContext& context, const std::string& function,
                                     std::size_t place) {
  std::string name;
  const bool keyword = co_await take_keyword(context.in, name);
  if (!keyword) name = context.tools.parameter_at(function, place).value_or("");
  co_return name;
}

/// The arguments and the bracket that closes. `name` is the first one's, already read.
Task<bool> write_call(ParseContext& context, const std::string& function, std::string name) {
  static const std::vector<std::string> no_stops;
  const TextSink sink = [&context](std::string_view text) { context.out.arguments(text); };
  TextCursor& in = context.in;
  for (std::size_t place = 0;; ++place) {
    context.out.arguments(member_start(name, place == 0));
    co_await in.take_space();
    bool found = co_await copy_literal(in, LiteralSyntax::python, no_stops, sink);
    if (!found) co_return false;
    co_await in.take_space();
    const bool comma = co_await in.take(",");
    co_await in.take_space();
    found = co_await in.take(")");
    if (found) {
      context.out.arguments("}");
      co_return true;
    }
    if (!comma) co_return false;
    name = co_await take_argument_name(context, function, place + 1);
    if (name.empty()) co_return false;
  }
}

/// One call, if there is one.
Task<CallEnd> parse_call(ParseContext& context, bool offered_only) {
  TextCursor& in = context.in;
  const std::size_t start = in.position();
  std::string function = co_await take_name(in);
  if (function.ends_with(call_method) && context.tools.find(function) == nullptr) {
    function.resize(function.size() - call_method.size());
  }
  const bool known = context.tools.find(function) != nullptr;
  if (function.empty() || (offered_only && !known)) {
    in.rewind(start);
    co_return CallEnd::none;
  }
  bool found = co_await in.take("(");
  if (found) {
    co_await in.take_space();
    const bool no_arguments = co_await in.take(")");
    if (no_arguments) {
      context.out.begin_call(function, {});
      context.out.arguments("{}");
      context.out.end_call();
      co_return CallEnd::whole;
    }
    const std::string name = co_await take_argument_name(context, function, 0);
    found = !name.empty();
    if (found) {
      context.out.begin_call(function, {});
      const bool whole = co_await write_call(context, function, name);
      context.out.end_call();
      co_return whole ? CallEnd::whole : CallEnd::broken;
    }
  }
  if (!in.exhausted()) in.rewind(start);
  co_return CallEnd::none;
}

/// Calls up to the bracket that closes their list. Only the first can be no call after all.
Task<bool> parse_list(ParseContext& context) {
  TextCursor& in = context.in;
  bool any = false;
  while (true) {
    co_await in.take_space();
    const CallEnd end = co_await parse_call(context, false);
    if (end != CallEnd::whole) co_return any || end == CallEnd::broken;
    any = true;
    co_await in.take_space();
    const bool comma = co_await in.take(",");
    co_await in.take_space();
    const bool closed = co_await in.take("]");
    if (closed || !comma) co_return true;
  }
}

/// Calls on lines of their own, perhaps each inside print().
Task<bool> parse_lines(ParseContext& context) {
  TextCursor& in = context.in;
  bool any = false;
  while (true) {
    const std::size_t place = in.position();
    co_await in.take_space();
    const bool printed =
        context.tools.find("print") == nullptr ? co_await in.take("print(") : false;
    const CallEnd end = co_await parse_call(context, false);
    if (end == CallEnd::none) {
      if (any && !in.exhausted()) in.rewind(place);
      co_return any;
    }
    any = true;
    if (end == CallEnd::broken) co_return true;
    if (printed) co_await in.take(")");
    co_await in.take(";");
  }
}

class PythonCalls : public CallSyntax {
 public:
  explicit PythonCalls(PythonCallForm form) : form_(std::move(form)) {}

  const std::vector<std::string>& openings() const override { return form_.openings; }
  bool has_bare() const override { return form_.bare; }

  Task<bool> parse(ParseContext& context, std::size_t) const override {
    TextCursor& in = context.in;
    co_await in.take_space();
    const bool list = co_await in.take("[");
    bool found = false;
    if (!list) {
      found = co_await parse_lines(context);
      co_return found;
    }
    co_await in.take_space();
    const bool objects = co_await in.at("{");
    if (objects) {
      found = co_await parse_json_calls(context, json_);
      co_await in.take_space();
      co_await in.take("]");
    } else {
      found = co_await parse_list(context);
    }
    co_return found;
  }

  Task<bool> parse_bare(ParseContext& context) const override {
    const bool list = co_await context.in.take("[");
    if (list) {
      const bool found = co_await parse_list(context);
      co_return found;
    }
    const CallEnd end = co_await parse_call(context, true);
    co_return end != CallEnd::none;
  }

 private:
  PythonCallForm form_;
  JsonCallForm json_{.openings = {}};
};

class Llama3Calls : public CallSyntax {
 public:
  const std::vector<std::string>& openings() const override { return openings_; }
  bool has_bare() const override { return true; }

  Task<bool> parse(ParseContext& context, std::size_t) const override {
    TextCursor& in = context.in;
    co_await in.take_space();
    const char next = co_await in.peek();
    bool found = false;
    if (next == '{' || next == '[') {
      found = co_await parse_json_calls(context, form_);
    } else {
      const std::size_t place = in.position();
      const CallEnd end = co_await parse_call(context, false);
      found = end != CallEnd::none;
      if (!found && !in.exhausted()) {
        in.rewind(place);
        found = co_await parse_code(context);
      }
    }
    co_return found;
  }

  Task<bool> parse_bare(ParseContext& context) const override {
    const bool found = co_await objects_->parse_bare(context);
    co_return found;
  }

 private:
  /// Code for the interpreter, if it is offered as a tool.
  Task<bool> parse_code(ParseContext& context) const {
    static const std::vector<std::string> ends = {"<|eom_id|>", "<|eot_id|>"};
    for (const char* name : {"python", "code_interpreter", "ipython"}) {
      const auto parameter = context.tools.parameter_at(name, 0);
      if (!parameter) continue;
      context.out.begin_call(name, {});
      context.out.arguments(member_start(*parameter, true).append("\""));
      const TextSink sink = [&context](std::string_view text) {
        std::string json;
        append_escaped(text, json);
        context.out.arguments(json);
      };
      co_await context.in.copy_until(ends, sink);
      context.out.arguments("\"}");
      co_return true;
    }
    co_return false;
  }

  std::vector<std::string> openings_ = {"<|python_tag|>"};
  JsonCallForm form_{.openings = openings_, .bare = true};
  std::shared_ptr<const CallSyntax> objects_ = json_calls(form_);
};

}  // namespace

std::shared_ptr<const CallSyntax> python_calls(PythonCallForm form) {
  return std::make_shared<PythonCalls>(std::move(form));
}

std::shared_ptr<const CallSyntax> llama3_calls() { return std::make_shared<Llama3Calls>(); }

}  // namespace espalier::chat
