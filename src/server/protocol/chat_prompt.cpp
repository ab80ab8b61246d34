#include "server/protocol/chat_prompt.h"

#include <chrono>

#include "server/protocol/special_marks.h"

namespace espalier::server::protocol {

using tokenizer::TextSpan;
using tokenizer::TokenId;

std::vector<PromptPiece> render_chat(const ServedModel& model, const ChatInput& input) {
  if (!model.chat_template) {
    throw base::RequestError(
        400, "no_chat_template",
        "The model '" + model.alias + "' has no chat template; use /v1/completions.");
  }
  SpecialMarks marks(model.special_names);
  Json tools = input.tools.offered() ? input.tools.tools : Json::array();
  Json messages = chat::describe_tools(input.messages, chat::ToolSet(dump(tools)), model.style);
  for (Json& tool : tools) marks.mark(tool);
  for (Json& message : messages) {
    for (auto& [key, value] : message.items()) {
      if (key != "role") marks.mark(value);
    }
  }
  Json variables = input.template_variables;
  marks.mark(variables);
  chat::RenderRequest request;
  request.messages_json = dump(messages);
  if (!tools.empty() && model.style.shows_tools) request.tools_json = dump(tools);
  request.kwargs_json = variables.empty() ? "" : dump(variables);
  request.special_tokens = model.text.special_tokens;
  request.add_generation_prompt = input.add_generation_prompt;
  request.continue_final_message = input.continue_final_message;
  request.now = std::chrono::system_clock::now();
  try {
    return marks.split(model.chat_template->render(request));
  } catch (const base::RequestError& error) {
    // A refusal may quote a message.
    throw base::RequestError(error.status(), error.code(), marks.restore(error.what()),
                             error.param());
  }
}

std::string join_pieces(const std::vector<PromptPiece>& pieces) {
  std::string text;
  for (const PromptPiece& piece : pieces) text += piece.text;
  return text;
}

std::vector<TokenId> encode_pieces(const tokenizer::Tokenizer& tokenizer,
                                   const std::vector<PromptPiece>& pieces) {
  std::vector<TextSpan> literal;
  std::size_t position = 0;
  for (const PromptPiece& piece : pieces) {
    if (piece.literal) literal.push_back({position, position + piece.text.size()});
    position += piece.text.size();
  }
  return tokenizer.encode_prompt(join_pieces(pieces), {.literal = literal});
}

}  // namespace espalier::server::protocol
