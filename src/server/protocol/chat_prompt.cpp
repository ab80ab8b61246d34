#include "server/protocol/chat_prompt.h"

#include <chrono>

#include "server/protocol/special_marks.h"

namespace espalier::server::protocol {

using tokenizer::TextSpan;
using tokenizer::TokenId;

namespace {

/// Applies `change` to the arguments of every tool call.
template <typename Change>
void change_arguments(Json& messages, Change change) {
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) continue;
    for (Json& call : *calls) {
      const auto arguments = call["function"].find("arguments");
      if (arguments != call["function"].end()) change(*arguments);
    }
  }
}

/// Several system messages at the beginning as one.
Json with_one_system(const Json& messages) {
  Json result = Json::array();
  for (const Json& message : messages) {
    if (result.size() != 1 || message["role"] != "system" || result[0]["role"] != "system") {
      result.push_back(message);
      continue;
    }
    std::string text = result[0]["content"].get<std::string>();
    text += "\n\n";
    text += message["content"].get<std::string>();
    result[0]["content"] = text;
  }
  return result;
}

/// What is tried when a template refuses a history or fails on it: one system message; arguments
/// that are no JSON object as one that holds them; all arguments as JSON text, which some templates
/// want.
std::vector<Json> adaptations(const Json& messages) {
  const Json merged = with_one_system(messages);
  Json objects = merged;
  change_arguments(objects, [](Json& arguments) {
    if (!arguments.is_object()) arguments = Json::object({{"arguments", arguments}});
  });
  Json texts = merged;
  change_arguments(texts, [](Json& arguments) {
    if (!arguments.is_string()) arguments = dump(arguments);
  });
  return {merged, objects, texts};
}

/// Renders the messages as they are, else adapted; the first refusal stands when all are refused.
std::string render_history(const chat::ChatTemplate& chat_template, chat::RenderRequest& request,
                           const Json& messages) {
  request.messages_json = dump(messages);
  try {
    return chat_template.render(request);
  } catch (const base::RequestError&) {
    for (const Json& other : adaptations(messages)) {
      if (other == messages) continue;
      request.messages_json = dump(other);
      try {
        return chat_template.render(request);
      } catch (const base::RequestError&) {
        continue;
      }
    }
    throw;
  }
}

}  // namespace

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
  if (!tools.empty() && model.style.shows_tools) request.tools_json = dump(tools);
  request.kwargs_json = variables.empty() ? "" : dump(variables);
  request.special_tokens = model.text.special_tokens;
  request.add_generation_prompt = input.add_generation_prompt;
  request.continue_final_message = input.continue_final_message;
  request.now = std::chrono::system_clock::now();
  try {
    return marks.split(render_history(*model.chat_template, request, messages));
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
                                   const std::vector<PromptPiece>& pieces,
                                   const base::CancellationToken& cancellation) {
  std::vector<TextSpan> literal;
  std::size_t position = 0;
  for (const PromptPiece& piece : pieces) {
    if (piece.literal) literal.push_back({position, position + piece.text.size()});
    position += piece.text.size();
  }
  return tokenizer.encode_prompt(join_pieces(pieces),
                                 {.literal = literal, .cancellation = cancellation});
}

}  // namespace espalier::server::protocol
