#pragma once

#include <string>
#include <vector>

#include "server/protocol/parameter.h"
#include "tokenizer/tokenizer.h"

namespace espalier::server::openai {

/// A request to `/tokenize`.
struct TokenizeRequest {
  std::string model;
  std::string content;
  bool add_special = false;
  bool parse_special = true;
  bool with_pieces = false;
};

/// A request to `/detokenize`.
struct DetokenizeRequest {
  std::string model;
  std::vector<tokenizer::TokenId> tokens;
};

/// Throw `RequestError` 400 naming the parameter that is missing, unknown or wrong.
TokenizeRequest parse_tokenize(const protocol::Json& body);
DetokenizeRequest parse_detokenize(const protocol::Json& body);

/// Adds the parameters of both to the table.
void append_text_rows(std::vector<protocol::ParameterRow>& rows);

}  // namespace espalier::server::openai
