#include "cli/line_editor.h"

#include <cstdlib>
#include <iostream>

#include <editline/readline.h>
#include <unistd.h>

namespace espalier::cli {

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  if (isatty(STDIN_FILENO) == 0) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  char* typed = readline(prompt.c_str());
  if (typed == nullptr) return std::nullopt;
  std::string line(typed);
  std::free(typed);
  if (!line.empty()) add_history(line.c_str());
  return line;
}

}  // namespace espalier::cli
