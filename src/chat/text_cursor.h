#pragma once

#include <coroutine>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "chat/task.h"

namespace espalier::chat {

using TextSink = std::function<void(std::string_view)>;

/// Whether `byte` is white space as JSON has it.
inline bool is_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/// `text` without white space at its ends.
inline std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// Text that arrives in pieces, and a place in it. The tasks below wait until what has come decides
/// their answer, so no answer depends on where the pieces were cut. Markers and sinks given to a
/// task must outlive it. Single-threaded.
class TextCursor {
 public:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  /// Adds text and runs the waiting task on.
  void append(std::string_view text);
  /// Says that no more text comes, and runs the waiting task on.
  void close();

  std::string_view rest() const { return std::string_view(text_).substr(position_); }
  std::size_t position() const { return position_; }
  void advance(std::size_t bytes) { position_ += bytes; }
  /// Goes back to an earlier place.
  void rewind(std::size_t position) { position_ = position; }
  /// All text has been taken and no more comes.
  bool exhausted() const { return closed_ && position_ == text_.size(); }

  /// Awaited, waits for more text; false when none comes.
  auto more() {
    struct Awaiter {
      TextCursor& cursor;
      bool await_ready() const { return cursor.closed_; }
      void await_suspend(std::coroutine_handle<> handle) const { cursor.waiting_ = handle; }
      bool await_resume() const { return !cursor.closed_; }
    };
    return Awaiter{*this};
  }

  /// The next byte, not taken; 0 at the end.
  Task<char> peek();
  /// Takes white space.
  Task<std::string> take_space();
  /// Whether the text goes on with `literal`; takes nothing.
  Task<bool> at(std::string_view literal);
  /// Takes `literal` if the text goes on with it.
  Task<bool> take(std::string_view literal);
  /// Which of the markers the text goes on with, the longest if several; takes nothing.
  Task<std::size_t> at_any(const std::vector<std::string>& markers);
  /// Gives text to `sink` up to the first of the markers, which is not taken; `none` at the end.
  Task<std::size_t> copy_until(const std::vector<std::string>& markers, const TextSink& sink);
  /// Takes the text before `marker` and the marker into `text`; false when it does not come within
  /// `limit` bytes (then a part of the text has been taken).
  Task<bool> read_until(std::string_view marker, std::size_t limit, std::string& text);

 private:
  void wake();

  std::string text_;
  std::size_t position_ = 0;
  bool closed_ = false;
  std::coroutine_handle<> waiting_;
};

}  // namespace espalier::chat
