#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chat/response_parser.h"
#include "server/protocol/chat_prompt.h"
#include "server/protocol/generation_run.h"
#include "server/protocol/tool_options.h"

namespace espalier::server::protocol {

/// How the answers to one request are to be read.
struct AnswerReading {
  chat::ParserOptions parser;
  bool parallel = true;  // unset: the first call is the last
};

/// What reads the answers to a prompt with these tools.
AnswerReading read_answers(const ServedModel& model, const ToolOptions& tools,
                           std::string_view prompt);

/// Makes the run's grammar, if one is needed, of the tools' choice, of the grammar that the request
/// gives, and of the reasoning that goes before. Throws `RequestError` 400 when they do not go
/// together.
void add_call_grammar(const ServedModel& model, const ToolOptions& tools, std::string_view prompt,
                      PreparedRun& run);

/// Limits the reasoning of the run's sequences; after `compile_grammar`.
void limit_reasoning(const ServedModel& model, int tokens, std::string_view prompt,
                     PreparedRun& run);

}  // namespace espalier::server::protocol
