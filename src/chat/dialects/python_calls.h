#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/dialect.h"

namespace espalier::chat {

/// Calls as Python writes them: NAME(key=value, …), one, in a list, or one a line.
struct PythonCallForm {
  std::vector<std::string> openings = {};
  bool bare = false;  // a list may stand without an opening, a single call if the tool is offered
};

std::shared_ptr<const CallSyntax> python_calls(PythonCallForm form);
/// Llama 3: JSON objects, bare or behind <|python_tag|>, or NAME.call(key=value) behind it.
std::shared_ptr<const CallSyntax> llama3_calls();

}  // namespace espalier::chat
