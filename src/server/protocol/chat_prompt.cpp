#include "server/protocol/chat_prompt.h"

#include <chrono>

#include "server/protocol/special_marks.h"

namespace espalier::server::protocol {

using tokenizer::SpecialTokens;
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
  chat::RenderRequest request;
  request.messages_json = dump(messages);
  if (!tools.empty() && model.style.shows_tools) request.tools_json = dump(tools);
  request.kwargs_json = input.template_variables.empty() ? "" : dump(input.template_variables);
  request.special_tokens = model.text.special_tokens;
  request.add_generation_prompt = input.add_generation_prompt;
  request.continue_final_message = input.continue_final_message;
  request.now = std::chrono::system_clock::now();
  return marks.split(model.chat_template->render(request));
}

std::string join_pieces(const std::vector<PromptPiece>& pieces) {
  std::string text;
  for (const PromptPiece& piece : pieces) text += piece.text;
  return text;
}

std::vector<TokenId> encode_pieces(const tokenizer::Tokenizer& tokenizer,
                                   const std::vector<PromptPiece>& pieces) {
  std::vector<TokenId> ids;
  for (const PromptPiece& piece : pieces) {
    const auto part = tokenizer.encode(
        piece.text, piece.literal ? SpecialTokens::literal : SpecialTokens::recognise);
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

}  // namespace espalier::server::protocol
