#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/message_event.h"

namespace espalier::chat {

/// Collects what a parser finds. White space next to markup belongs to the markup: between text and
/// markup it is dropped, elsewhere kept.
class MessageWriter {
 public:
  /// Text of the answer.
  void content(std::string_view text);
  /// Text of the reasoning.
  void reasoning(std::string_view text);
  /// Markup stood here.
  void markup();

  /// Opens a call; the one before it ends. An empty id is the model's silence.
  void begin_call(std::string_view name, std::string_view id);
  void arguments(std::string_view text);
  /// Ends the open call; `id` if it came late.
  void end_call(std::string_view id = {});

  /// No more comes: white space at the end of text without markup is text.
  void finish();

  /// Nothing but white space has come since the beginning or the last markup.
  bool fresh() const { return fresh_; }
  /// The same, and there was markup.
  bool after_markup() const { return content_.at_markup; }
  std::size_t calls() const { return calls_; }

  /// The events since the last time.
  std::vector<MessageEvent> take();

 private:
  /// Text of one kind, with the white space that may stand at its edge.
  struct Run {
    bool any = false;        // it has shown something
    bool at_markup = false;  // nothing of it came since the last markup
    std::string space = {};  // to be shown before more of it
  };

  void write(MessageEventKind kind, std::string_view text, Run& run);
  void emit(MessageEventKind kind, std::string_view text);

  std::vector<MessageEvent> events_;
  Run content_;
  Run reasoning_{.at_markup = true};
  std::size_t calls_ = 0;
  bool open_ = false;
  bool fresh_ = true;
};

}  // namespace espalier::chat
