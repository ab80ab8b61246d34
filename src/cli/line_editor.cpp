#include "cli/line_editor.h"

#include <cerrno>
#include <cstdio>
#include <iostream>

#include <histedit.h>
#include <unistd.h>

namespace espalier::cli {
namespace {

constexpr int history_lines = 1000;

char* prompt(EditLine*) {
  static char text[] = "> ";
  return text;
}

}  // namespace

struct LineEditor::Impl {
  std::string history_path;
  EditLine* editor = nullptr;  // null when standard input is no terminal
  History* history = nullptr;
  HistEvent event{};
};

LineEditor::LineEditor(const std::string& history_path) : impl_(std::make_unique<Impl>()) {
  if (isatty(STDIN_FILENO) == 0) return;
  impl_->history_path = history_path;
  impl_->editor = el_init("espalier", stdin, stdout, stderr);
  impl_->history = history_init();
  history(impl_->history, &impl_->event, H_SETSIZE, history_lines);
  history(impl_->history, &impl_->event, H_SETUNIQUE, 1);
  history(impl_->history, &impl_->event, H_LOAD, history_path.c_str());
  el_set(impl_->editor, EL_PROMPT, prompt);
  el_set(impl_->editor, EL_EDITOR, "emacs");
  el_set(impl_->editor, EL_HIST, history, impl_->history);
}

LineEditor::~LineEditor() {
  if (impl_->editor == nullptr) return;
  history(impl_->history, &impl_->event, H_SAVE, impl_->history_path.c_str());
  history_end(impl_->history);
  el_end(impl_->editor);
}

LineEditor::Result LineEditor::read() {
  std::string text;
  if (impl_->editor == nullptr) {
    const bool got = static_cast<bool>(std::getline(std::cin, text));
    return {got ? Outcome::line : Outcome::end, text};
  }
  int length = 0;
  errno = 0;
  const char* line = el_gets(impl_->editor, &length);
  if (line == nullptr || length <= 0) {
    const bool interrupted = errno == EINTR;
    el_reset(impl_->editor);
    return {interrupted ? Outcome::interrupted : Outcome::end, ""};
  }
  text.assign(line, static_cast<std::size_t>(length));
  while (text.ends_with('\n')) text.pop_back();
  if (!text.empty()) history(impl_->history, &impl_->event, H_ENTER, line);
  return {Outcome::line, text};
}

}  // namespace espalier::cli
