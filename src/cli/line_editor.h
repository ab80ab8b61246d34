#pragma once

#include <memory>
#include <optional>
#include <string>

namespace espalier::cli {

/// Reads lines from the user: with editing and a history file on a terminal, plainly otherwise.
class LineEditor {
 public:
  /// `history` is where lines are kept between sessions.
  explicit LineEditor(const std::string& history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Outcome { line, interrupted, end };
  struct Result {
    Outcome outcome;
    std::string text;
  };

  /// `interrupted` when a signal came while the user typed; `end` at the end of the input.
  Result read();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::cli
