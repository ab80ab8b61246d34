#include "chat/response_parser.h"

#include <algorithm>
#include <utility>

namespace espalier::chat {
namespace {

constexpr std::size_t none = TextCursor::none;

void append(std::vector<std::string>& list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

std::string_view trim_end(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// The parser of dialects in which calls stand between markers in the text.
class MarkedText {
 public:
  MarkedText(const Dialect* dialect, bool calls, const ReasoningMarks& reasoning)
      : dialect_(dialect), calls_(calls), reasoning_(reasoning), reasoning_ends_(reasoning.close) {
    if (dialect == nullptr) return;
    if (calls) text_markers_ = dialect->calls->openings();
    openings_ = text_markers_.size();
    append(text_markers_, dialect->hidden);
    append(text_markers_, dialect->endings);
    append(reasoning_ends_, dialect->endings);
    edge_markers_ = dialect->closings;
    append(edge_markers_, dialect->calls->openings());
  }

  Task<void> parse(ParseContext& context, bool reasoning_open) const;

 private:
  Task<bool> parse_edge(ParseContext& context) const;
  Task<bool> parse_marker(ParseContext& context, std::size_t marker) const;
  Task<bool> take_any(ParseContext& context, const std::vector<std::string>& markers) const;
  Task<bool> ends_here(ParseContext& context) const;
  Task<void> parse_reasoning(ParseContext& context) const;

  const Dialect* dialect_;
  bool calls_;
  const ReasoningMarks& reasoning_;
  std::vector<std::string> reasoning_ends_;
  std::vector<std::string> text_markers_;  // openings, hidden, endings
  std::vector<std::string> edge_markers_;  // closings, openings
  std::size_t openings_ = 0;
};

Task<void> MarkedText::parse(ParseContext& context, bool reasoning_open) const {
  if (reasoning_open) co_await parse_reasoning(context);
  const TextSink content = [&context](std::string_view text) { context.out.content(text); };
  while (true) {
    if (context.out.fresh()) {
      const bool found = co_await parse_edge(context);
      if (found) continue;
    }
    const std::size_t marker = co_await context.in.copy_until(text_markers_, content);
    if (marker == none) break;
    const bool more = co_await parse_marker(context, marker);
    if (!more) break;
  }
}

/// Where nothing but markup has come: what may only stand here.
Task<bool> MarkedText::parse_edge(ParseContext& context) const {
  const std::string space = co_await context.in.take_space();
  bool found = co_await take_any(context, reasoning_.open);
  if (found) {
    co_await parse_reasoning(context);
    co_return true;
  }
  found = co_await take_any(context, reasoning_.close);
  if (found) co_return true;
  if (dialect_ != nullptr) {
    std::size_t marker = none;
    if (context.out.after_markup()) marker = co_await context.in.at_any(edge_markers_);
    if (marker < dialect_->closings.size()) {
      context.in.advance(edge_markers_[marker].size());
      context.out.markup();
      co_return true;
    }
    if (calls_ && dialect_->calls->has_bare()) {
      const std::size_t place = context.in.position();
      found = co_await dialect_->calls->parse_bare(context);
      if (found) {
        context.out.end_call();
        context.out.markup();
        co_return true;
      }
      context.in.rewind(place);
    }
  }
  context.out.content(space);
  co_return false;
}

Task<bool> MarkedText::take_any(ParseContext& context,
                                const std::vector<std::string>& markers) const {
  const std::size_t marker = co_await context.in.at_any(markers);
  if (marker == none) co_return false;
  context.in.advance(markers[marker].size());
  context.out.markup();
  co_return true;
}

/// A marker in the text; false when all is read.
Task<bool> MarkedText::parse_marker(ParseContext& context, std::size_t marker) const {
  const std::string& text = text_markers_[marker];
  context.in.advance(text.size());
  const std::size_t place = context.in.position();
  if (marker < openings_) {
    const bool call = co_await dialect_->calls->parse(context, marker);
    if (call) {
      context.out.end_call();
      context.out.markup();
      co_return true;
    }
    // Cut off before it was a call: with calls before it, it would have been the next one.
    if (context.in.exhausted() && context.out.calls() > 0) co_return false;
  } else if (marker < openings_ + dialect_->hidden.size()) {
    context.out.markup();
    co_return true;
  } else {
    const bool ends = co_await ends_here(context);
    if (ends) co_return false;
  }
  context.in.rewind(place);
  context.out.content(text);
  co_return true;
}

/// Whether nothing comes any more but white space and further endings.
Task<bool> MarkedText::ends_here(ParseContext& context) const {
  while (true) {
    co_await context.in.take_space();
    const std::size_t ending = co_await context.in.at_any(dialect_->endings);
    if (ending == none) break;
    context.in.advance(dialect_->endings[ending].size());
  }
  co_await context.in.peek();
  co_return context.in.exhausted();
}

Task<void> MarkedText::parse_reasoning(ParseContext& context) const {
  const TextSink reasoning = [&context](std::string_view text) { context.out.reasoning(text); };
  while (true) {
    const std::size_t marker = co_await context.in.copy_until(reasoning_ends_, reasoning);
    if (marker == none) break;
    const std::string& text = reasoning_ends_[marker];
    context.in.advance(text.size());
    if (marker < reasoning_.close.size()) break;
    const std::size_t place = context.in.position();
    const bool ends = co_await ends_here(context);
    if (ends) break;
    context.in.rewind(place);
    context.out.reasoning(text);
  }
  context.out.markup();
}

}  // namespace

Task<bool> CallSyntax::parse_bare(ParseContext&) const { co_return false; }

bool opens_reasoning(std::string_view prompt_end, const ReasoningMarks& reasoning) {
  const std::string_view prompt = trim_end(prompt_end);
  return std::any_of(reasoning.open.begin(), reasoning.open.end(),
                     [prompt](const auto& open) { return prompt.ends_with(trim_end(open)); });
}

struct ResponseParser::State {
  explicit State(ParserOptions given)
      : options(std::move(given)),
        message(options.dialect ? options.dialect->message.get() : nullptr),
        marked(message ? nullptr : options.dialect, options.calls, options.reasoning),
        context{in, out, options.tools},
        task(message
                 ? message->parse(context)
                 : marked.parse(context, opens_reasoning(options.prompt_end, options.reasoning))) {}

  ParserOptions options;
  const MessageSyntax* message;
  MarkedText marked;
  TextCursor in;
  MessageWriter out;
  ParseContext context;
  Task<void> task;
};

ResponseParser::ResponseParser(ParserOptions options) {
  if (options.dialect != nullptr && options.reasoning.open.empty()) {
    options.reasoning = options.dialect->reasoning;
  }
  state_ = std::make_unique<State>(std::move(options));
  if (state_->message) state_->in.append(state_->message->opened_by(state_->options.prompt_end));
  state_->task.start();
}

ResponseParser::~ResponseParser() = default;

std::vector<MessageEvent> ResponseParser::feed(std::string_view text) {
  if (!text.empty() && !state_->task.done()) state_->in.append(text);
  if (state_->task.done()) state_->task.result();
  return state_->out.take();
}

std::vector<MessageEvent> ResponseParser::finish() {
  state_->in.close();
  if (state_->task.done()) state_->task.result();
  state_->out.finish();
  return state_->out.take();
}

ParsedMessage parse_response(ParserOptions options, std::string_view text) {
  ResponseParser parser(std::move(options));
  ParsedMessage message;
  apply_events(parser.feed(text), message);
  apply_events(parser.finish(), message);
  return message;
}

std::vector<std::string> markup_of(const Dialect& dialect, const ReasoningMarks& reasoning) {
  std::vector<std::string> texts = dialect.markup;
  if (dialect.calls) append(texts, dialect.calls->openings());
  append(texts, dialect.closings);
  append(texts, dialect.hidden);
  append(texts, reasoning.open);
  append(texts, reasoning.close);
  return texts;
}

}  // namespace espalier::chat
