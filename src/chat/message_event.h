#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace espalier::chat {

enum class MessageEventKind {
  content,         // text of the answer
  reasoning,       // text of the reasoning
  call_begin,      // a tool call starts: `text` is the name
  call_arguments,  // more of the call's arguments, JSON text as the API has it
  call_end,        // nothing more comes for the call
};

/// A piece of a parsed answer. Pieces are only ever added: what has been said is never taken back.
struct MessageEvent {
  MessageEventKind kind;
  std::string text = {};
  std::size_t call = 0;  // which one, counted from 0
  std::string id = {};   // begin or end of a call: the model's own id, if it wrote one
};

struct ToolCall {
  std::string id;  // the model's own, else "call_" and the call's number
  std::string name;
  std::string arguments;
};

struct ParsedMessage {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
};

/// Adds the events to `message`.
void apply_events(const std::vector<MessageEvent>& events, ParsedMessage& message);

}  // namespace espalier::chat
