#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/dialect.h"

namespace espalier::chat {

/// Calls with a header that holds the name, and arguments in JSON after it:
/// `begin` [ID `after_id`] NAME `after_name` ARGUMENTS.
struct HeaderCallForm {
  std::vector<std::string> sections = {};  // open a run of calls; nothing by themselves
  std::string begin;
  std::string after_id = {};    // empty: there is no id
  std::string after_name = {};  // empty: white space
  std::vector<std::string> stops = {};
};

/// Functionary 3.1's and Llama 3.1's `<function=NAME>`, Solar's header.
std::shared_ptr<const CallSyntax> header_calls(HeaderCallForm form);
/// DeepSeek: V3's `TYPE SEP NAME` with a fenced block, V3.1's `NAME SEP ARGUMENTS`.
std::shared_ptr<const CallSyntax> deepseek_calls();
/// Kimi K2: the name stands in the id.
std::shared_ptr<const CallSyntax> kimi_calls();
/// Mistral: an array of objects, or NAME[ARGS]ARGUMENTS, perhaps with [CALL_ID].
std::shared_ptr<const CallSyntax> mistral_calls();

}  // namespace espalier::chat
