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

}  // namespace espalier::server::protocol
