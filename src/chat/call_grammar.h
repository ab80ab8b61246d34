#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "chat/dialect.h"
#include "chat/tool_set.h"

namespace espalier::chat {

/// How a Lark grammar writes a piece of the model's markup: a special token or a quoted string.
using MarkupReference = std::function<std::string(std::string_view)>;

/// What a forced answer may hold.
struct CallGrammarOptions {
  std::string only = {};  // the function that must be called; empty: any of them
  bool parallel = true;   // several calls
};

/// What ends an argument without quotes in the dialect's grammar; empty where they all have some.
std::string argument_close(const Dialect& dialect);

/// A Lark grammar (llguidance's) of answers that are calls of the tools in this dialect, each with
/// arguments that fulfil the tool's schema, and nothing else.
std::string call_grammar(const Dialect& dialect, const ToolSet& tools,
                         const CallGrammarOptions& options, const MarkupReference& reference);

}  // namespace espalier::chat
