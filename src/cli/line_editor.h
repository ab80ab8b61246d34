#pragma once

#include <optional>
#include <string>

namespace espalier::cli {

/// Reads lines from standard input, with editing and history on a terminal (libedit).
class LineEditor {
 public:
  /// The next line without its end; nothing at the end of input. The prompt is shown on a terminal
  /// only. An interrupt while typing gives an empty line.
  std::optional<std::string> read(const std::string& prompt);
};

}  // namespace espalier::cli
