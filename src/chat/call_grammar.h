#pragma once

#include <string>

#include "chat/call_markup.h"
#include "chat/dialect.h"
#include "chat/tool_set.h"

namespace espalier::chat {

/// What a forced answer may hold.
struct CallGrammarOptions {
  std::string only = {};  // the function that must be called; empty: any of them
  bool parallel = true;   // several calls
};

/// What ends free text without quotes, an argument or a thought, in the dialect's grammar; empty
/// where it has none.
std::string argument_close(const Dialect& dialect);

/// A Lark grammar (llguidance's, with `%string`) of answers that are calls of the tools in this
/// dialect, each of which the dialect's parser reads as arguments that fulfil the tool's schema,
/// and nothing else. Throws `RequestError` 400 naming the keyword or name that the dialect has no
/// form for.
std::string call_grammar(const Dialect& dialect, const ToolSet& tools,
                         const CallGrammarOptions& options, const MarkupReference& reference);

}  // namespace espalier::chat
