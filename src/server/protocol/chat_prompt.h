#pragma once

#include <string>
#include <vector>

#include "server/protocol/parameter.h"
#include "server/protocol/served_model.h"
#include "server/protocol/tool_options.h"

namespace espalier::server::protocol {

/// A conversation and what else a template is given.
struct ChatInput {
  Json messages = Json::array();  // as `read_messages` gives them
  ToolOptions tools = {};
  std::string chat_template = {};  // as `with_template` takes it
  Json template_variables = Json::object();
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

/// A rendered prompt in pieces. In a literal one a special token's name was written by the user and
/// is plain text; in the others such names are the template's and become the tokens.
struct PromptPiece {
  std::string text;
  bool literal = false;
};

/// Renders the conversation through the model's template. Throws `RequestError` 400 when the model
/// has none or the template refuses.
std::vector<PromptPiece> render_chat(const ServedModel& model, const ChatInput& input);

/// The prompt as one text.
std::string join_pieces(const std::vector<PromptPiece>& pieces);

/// The prompt's token ids. Throws `RequestError` 499 once it is cancelled.
std::vector<tokenizer::TokenId> encode_pieces(const tokenizer::Tokenizer& tokenizer,
                                              const std::vector<PromptPiece>& pieces,
                                              const base::CancellationToken& cancellation = {});

}  // namespace espalier::server::protocol
