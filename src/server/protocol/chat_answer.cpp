#include "server/protocol/chat_answer.h"

namespace espalier::server::protocol {

AnswerReading read_answers(const ServedModel& model, const ToolOptions& tools,
                           std::string_view prompt) {
  return {.parser = {.dialect = model.style.dialect,
                     .calls = tools.offered(),
                     .reasoning = model.style.reasoning,
                     .prompt_end = std::string(prompt),
                     .tools = chat::ToolSet(dump(tools.tools))},
          .parallel = tools.parallel};
}

}  // namespace espalier::server::protocol
