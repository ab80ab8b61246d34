#include "chat/message_writer.h"

#include <utility>

#include "chat/text_cursor.h"

namespace espalier::chat {

void apply_events(const std::vector<MessageEvent>& events, ParsedMessage& message) {
  for (const MessageEvent& event : events) {
    switch (event.kind) {
      case MessageEventKind::content:
        message.content += event.text;
        break;
      case MessageEventKind::reasoning:
        message.reasoning += event.text;
        break;
      case MessageEventKind::call_begin:
        message.tool_calls.push_back(
            {event.id.empty() ? "call_" + std::to_string(event.call) : event.id, event.text, ""});
        break;
      case MessageEventKind::call_arguments:
        message.tool_calls[event.call].arguments += event.text;
        break;
      case MessageEventKind::call_end:
        if (!event.id.empty()) message.tool_calls[event.call].id = event.id;
        break;
    }
  }
}

void MessageWriter::content(std::string_view text) {
  write(MessageEventKind::content, text, content_);
}

void MessageWriter::reasoning(std::string_view text) {
  write(MessageEventKind::reasoning, text, reasoning_);
}

void MessageWriter::write(MessageEventKind kind, std::string_view text, Run& run) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (begin < end && is_space(text[begin])) ++begin;
  const std::string_view lead = text.substr(0, begin);
  if (!run.at_markup) {
    run.space += lead;
  } else if (run.any && run.space.empty()) {
    run.space = lead;
  }
  if (begin == end) return;
  while (is_space(text[end - 1])) --end;
  emit(kind, run.space);
  emit(kind, text.substr(begin, end - begin));
  run = {.any = true, .at_markup = false, .space = std::string(text.substr(end))};
  if (kind == MessageEventKind::content) fresh_ = false;
}

void MessageWriter::markup() {
  fresh_ = true;
  content_.at_markup = true;
  if (!content_.any) content_.space.clear();
  reasoning_.at_markup = true;
  reasoning_.space.assign(reasoning_.any ? 1 : 0, '\n');
}

void MessageWriter::begin_call(std::string_view name, std::string_view id) {
  end_call();
  events_.push_back({.kind = MessageEventKind::call_begin,
                     .text = std::string(name),
                     .call = calls_,
                     .id = std::string(id)});
  ++calls_;
  open_ = true;
}

void MessageWriter::arguments(std::string_view text) {
  emit(MessageEventKind::call_arguments, text);
}

void MessageWriter::end_call(std::string_view id) {
  if (!open_) return;
  events_.push_back(
      {.kind = MessageEventKind::call_end, .call = calls_ - 1, .id = std::string(id)});
  open_ = false;
}

void MessageWriter::finish() {
  end_call();
  if (!content_.at_markup) emit(MessageEventKind::content, std::exchange(content_.space, {}));
}

void MessageWriter::emit(MessageEventKind kind, std::string_view text) {
  if (text.empty()) return;
  if (!events_.empty() && events_.back().kind == kind) {
    events_.back().text += text;
    return;
  }
  events_.push_back({.kind = kind,
                     .text = std::string(text),
                     .call = kind == MessageEventKind::call_arguments ? calls_ - 1 : 0});
}

std::vector<MessageEvent> MessageWriter::take() { return std::exchange(events_, {}); }

}  // namespace espalier::chat
