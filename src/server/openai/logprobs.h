#pragma once

#include <vector>

#include "generation/request.h"
#include "server/protocol/parameter.h"
#include "tokenizer/tokenizer.h"

namespace espalier::server::openai {

/// `{"content":[{token,logprob,bytes,top_logprobs}]}`, the shape of chat completions. The end token
/// is no part of the text and left out.
protocol::Json chat_logprobs(const std::vector<generation::TokenEvent>& tokens,
                             const tokenizer::Tokenizer& tokenizer);

/// `{tokens,token_logprobs,top_logprobs,text_offset}`, the shape of completions; `offset` is where
/// the first token's text stands, in characters of the choice's text, and moves on.
protocol::Json completion_logprobs(const std::vector<generation::TokenEvent>& tokens,
                                   const tokenizer::Tokenizer& tokenizer, std::size_t& offset);

/// Characters (code points) of UTF-8 text.
std::size_t count_characters(std::string_view text);

}  // namespace espalier::server::openai
