#include "server/openai/text_parameters.h"

#include <limits>

namespace espalier::server::openai {
namespace {

using protocol::mapped;
using protocol::Parameter;
using protocol::ParameterRules;

template <typename Target>
protocol::ParameterRule<Target> string_rule(std::string name, std::string note,
                                            std::string Target::*field) {
  return mapped<Target>(
      std::move(name), std::move(note),
      [field](const Parameter& parameter, Target& target) { target.*field = parameter.string(); });
}

protocol::ParameterRule<TokenizeRequest> flag_rule(std::string name, std::string note,
                                                   bool TokenizeRequest::*field) {
  return mapped<TokenizeRequest>(std::move(name), std::move(note),
                                 [field](const Parameter& parameter, TokenizeRequest& target) {
                                   target.*field = parameter.boolean();
                                 });
}

ParameterRules<TokenizeRequest> tokenize_rules() {
  return {string_rule("model", "as in /v1/chat/completions", &TokenizeRequest::model),
          string_rule("content", "the text", &TokenizeRequest::content),
          flag_rule("add_special", "add what belongs before and after a text (BOS, EOS)",
                    &TokenizeRequest::add_special),
          flag_rule("parse_special", "special tokens written in the text become their ids",
                    &TokenizeRequest::parse_special),
          flag_rule("with_pieces", "answer with {id, piece} for each token",
                    &TokenizeRequest::with_pieces)};
}

ParameterRules<DetokenizeRequest> detokenize_rules() {
  return {string_rule("model", "as in /v1/chat/completions", &DetokenizeRequest::model),
          mapped<DetokenizeRequest>(
              "tokens", "token ids", [](const Parameter& parameter, DetokenizeRequest& request) {
                for (const Parameter& id : parameter.elements()) {
                  request.tokens.push_back(static_cast<tokenizer::TokenId>(
                      id.integer(0, std::numeric_limits<tokenizer::TokenId>::max())));
                }
              })};
}

}  // namespace

TokenizeRequest parse_tokenize(const protocol::Json& body) {
  TokenizeRequest request;
  apply_rules(body, tokenize_rules(), request);
  protocol::require_member(body, "content");
  return request;
}

DetokenizeRequest parse_detokenize(const protocol::Json& body) {
  DetokenizeRequest request;
  apply_rules(body, detokenize_rules(), request);
  protocol::require_member(body, "tokens");
  return request;
}

void append_text_rows(std::vector<protocol::ParameterRow>& rows) {
  append_rows(rows, "/tokenize", tokenize_rules());
  append_rows(rows, "/detokenize", detokenize_rules());
}

}  // namespace espalier::server::openai
