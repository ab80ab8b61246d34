#pragma once

#include <string>
#include <string_view>

#include "chat/literal.h"

namespace espalier::chat {

/// The state machine behind `copy_literal`: reads a value byte by byte.
class LiteralScanner {
 public:
  enum class State {
    running,
    line_end,  // a raw line end in a string comes next: it may be the string's, or a broken one's
    done,
    failed,  // the next byte has no place in a value
  };

  explicit LiteralScanner(LiteralSyntax syntax) : syntax_(syntax) {}

  /// Reads as much of `text` as belongs to the value, appends it as JSON and returns its length.
  std::size_t read(std::string_view text, std::string& json);
  /// Lets the line end that comes next be part of the string.
  void accept_line_end() { line_end_accepted_ = true; }
  /// No more text comes: a number or a word may end here.
  void finish(std::string& json);

  State state() const { return state_; }

 private:
  enum class Place { outside, word, string, empty_string };

  // Each reads one byte; false when it is not taken.
  bool read_outside(char byte, std::string& json);
  bool read_word(char byte, std::string& json);
  bool read_string(char byte, std::string& json);
  bool read_empty_string(char byte, std::string& json);

  void open(char bracket, std::string& json);
  bool close(char bracket, std::string& json);
  void end_value();
  void flush_word(std::string& json);
  void flush_comma(std::string& json);
  void read_escape(char byte, std::string& json);
  void read_quote(std::string& json);
  void flush_quotes(std::string& json);

  LiteralSyntax syntax_;
  State state_ = State::running;
  Place place_ = Place::outside;
  std::string brackets_;
  std::string word_;
  std::string comma_;  // a comma and what white space followed it
  std::string escape_;
  char quote_ = 0;
  bool triple_ = false;
  int quotes_ = 0;  // of a triple-quoted string's end, so far
  bool line_end_accepted_ = false;
};

}  // namespace espalier::chat
