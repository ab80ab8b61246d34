#include "chat/dialects/header_calls.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "chat/dialects/call_parts.h"
#include "chat/dialects/json_calls.h"

namespace espalier::chat {
namespace {

struct Header {
  std::string name = {};
  std::string id = {};
};

/// Markers of which the first ones open sections and the last a call.
class SectionCalls : public CallSyntax {
 public:
  SectionCalls(std::vector<std::string> sections, std::string begin, std::vector<std::string> stops)
      : openings_(std::move(sections)), begin_(std::move(begin)), stops_(std::move(stops)) {
    openings_.push_back(begin_);
  }

  const std::vector<std::string>& openings() const override { return openings_; }

  Task<bool> parse(ParseContext& context, std::size_t opening) const override {
    TextCursor& in = context.in;
    bool found = false;
    if (opening + 1 < openings_.size()) {
      co_await in.take_space();
      found = co_await in.at(begin_);
      co_return found;
    }
    Header header;
    found = co_await parse_header(context, header);
    if (!found || header.name.empty()) co_return false;
    co_await in.take_space();
    const char first = co_await in.peek();
    if (first != '{' && first != '"' && !in.exhausted()) co_return false;
    context.out.begin_call(header.name, header.id);
    if (first != '\0') co_await write_arguments(context, stops_);
    found = co_await skip_fence(in);
    co_return true;
  }

 protected:
  virtual Task<bool> parse_header(ParseContext& context, Header& header) const = 0;

 private:
  /// The end of a fenced block, if it comes next.
  static Task<bool> skip_fence(TextCursor& in) {
    const std::size_t place = in.position();
    co_await in.take_space();
    const bool found = co_await in.take("```");
    if (!found) in.rewind(place);
    co_return found;
  }

  std::vector<std::string> openings_;
  std::string begin_;
  std::vector<std::string> stops_;
};

class HeaderCalls : public SectionCalls {
 public:
  explicit HeaderCalls(HeaderCallForm form)
      : SectionCalls(form.sections, form.begin, form.stops), form_(std::move(form)) {}

 protected:
  Task<bool> parse_header(ParseContext& context, Header& header) const override {
    TextCursor& in = context.in;
    bool found = false;
    if (!form_.after_id.empty()) {
      header.id = co_await take_name(in);
      found = co_await in.take(form_.after_id);
      if (!found) co_return false;
    }
    header.name = co_await take_name(in);
    if (form_.after_name.empty()) co_return true;
    found = co_await in.take(form_.after_name);
    co_return found;
  }

 private:
  HeaderCallForm form_;
};

const std::vector<std::string> deepseek_sections = {
    "<｜tool▁calls▁begin｜>", "<｜tool_calls_begin｜>", "<｜tool calls begin｜>",
    "<｜tool\\_calls\\_begin｜>"};

class DeepSeekCalls : public SectionCalls {
 public:
  DeepSeekCalls()
      : SectionCalls(deepseek_sections, "<｜tool▁call▁begin｜>",
                     {"<｜tool▁call▁end｜>", "```<｜tool▁call▁end｜>"}) {}

 protected:
  Task<bool> parse_header(ParseContext& context, Header& header) const override {
    TextCursor& in = context.in;
    header.name = co_await take_name(in);
    co_await in.take_space();
    const bool found = co_await in.take("<｜tool▁sep｜>");
    if (!found) co_return false;
    co_await in.take_space();
    const char next = co_await in.peek();
    if (next == '{' || next == '"') co_return true;
    header.name = co_await take_name(in);
    co_await in.take_space();
    co_await take_fence(in);
    co_return true;
  }
};

class KimiCalls : public SectionCalls {
 public:
  KimiCalls()
      : SectionCalls({"<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"},
                     "<|tool_call_begin|>", {"<|tool_call_end|>"}) {}

 protected:
  Task<bool> parse_header(ParseContext& context, Header& header) const override {
    TextCursor& in = context.in;
    co_await in.take_space();
    header.id = co_await take_name(in);
    co_await in.take_space();
    const bool found = co_await in.take("<|tool_call_argument_begin|>");
    if (!found) co_return false;
    static constexpr std::string_view prefix = "functions.";
    std::string_view name = header.id;
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    const std::size_t colon = name.rfind(':');
    if (colon != std::string_view::npos &&
        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(colon) + 1, name.end(),
                    [](unsigned char byte) { return std::isdigit(byte) != 0; })) {
      name = name.substr(0, colon);
    }
    header.name = name;
    co_return true;
  }
};

class MistralCalls : public SectionCalls {
 public:
  MistralCalls() : SectionCalls({}, "[TOOL_CALLS]", {}) {}

  Task<bool> parse(ParseContext& context, std::size_t opening) const override {
    co_await context.in.take_space();
    const char next = co_await context.in.peek();
    bool found = false;
    if (next == '[' || next == '{') {
      found = co_await parse_json_calls(context, array_);
    } else {
      found = co_await SectionCalls::parse(context, opening);
    }
    co_return found;
  }

 protected:
  Task<bool> parse_header(ParseContext& context, Header& header) const override {
    TextCursor& in = context.in;
    header.name = co_await take_name(in);
    co_await in.take_space();
    bool found = co_await in.take("[CALL_ID]");
    if (found) {
      co_await in.take_space();
      header.id = co_await take_name(in);
      co_await in.take_space();
    }
    found = co_await in.take("[ARGS]");
    co_return found;
  }

 private:
  JsonCallForm array_{.openings = {}};
};

}  // namespace

std::shared_ptr<const CallSyntax> header_calls(HeaderCallForm form) {
  return std::make_shared<HeaderCalls>(std::move(form));
}

std::shared_ptr<const CallSyntax> deepseek_calls() { return std::make_shared<DeepSeekCalls>(); }

std::shared_ptr<const CallSyntax> kimi_calls() { return std::make_shared<KimiCalls>(); }

std::shared_ptr<const CallSyntax> mistral_calls() { return std::make_shared<MistralCalls>(); }

}  // namespace espalier::chat
