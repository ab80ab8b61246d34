#include "server/openai/embedding_parameters.h"

#include <limits>

namespace espalier::server::openai {
namespace {

using protocol::accepted;
using protocol::mapped;
using protocol::Parameter;
using protocol::ParameterRules;
using protocol::refused;
using tokenizer::TokenId;

constexpr std::size_t most_inputs = 2048;  // as OpenAI

TokenId token_id(const Parameter& parameter) {
  return static_cast<TokenId>(parameter.integer(0, std::numeric_limits<TokenId>::max()));
}

std::vector<TokenId> token_ids(const Parameter& parameter) {
  std::vector<TokenId> ids;
  for (const Parameter& id : parameter.elements()) ids.push_back(token_id(id));
  return ids;
}

/// A text, a list of token ids, or a list of texts or of lists.
void apply_input(const Parameter& parameter, EmbeddingRequest& request) {
  const protocol::Json& value = parameter.json();
  if (value.is_string()) {
    request.inputs.emplace_back(parameter.string());
    return;
  }
  if (value.is_array() && !value.empty() && value.front().is_number()) {
    request.inputs.emplace_back(token_ids(parameter));
    return;
  }
  for (const Parameter& element : parameter.elements()) {
    if (element.json().is_array()) {
      request.inputs.emplace_back(token_ids(element));
    } else {
      request.inputs.emplace_back(element.string());
    }
  }
  if (request.inputs.empty()) parameter.refuse("is empty");
  if (request.inputs.size() > most_inputs) {
    parameter.refuse("has more than " + std::to_string(most_inputs) + " entries");
  }
}

ParameterRules<EmbeddingRequest> embedding_rules() {
  return {mapped<EmbeddingRequest>("model", "as in /v1/chat/completions",
                                   [](const Parameter& parameter, EmbeddingRequest& request) {
                                     request.model = parameter.string();
                                   }),
          mapped<EmbeddingRequest>("input", "a text or a list of token ids, or a list of these",
                                   apply_input),
          mapped<EmbeddingRequest>("encoding_format", "float or base64",
                                   [](const Parameter& parameter, EmbeddingRequest& request) {
                                     const std::string format = parameter.string();
                                     request.base64 = format == "base64";
                                     if (!request.base64 && format != "float") {
                                       parameter.refuse("must be 'float' or 'base64'");
                                     }
                                   }),
          refused<EmbeddingRequest>("dimensions", "an embedding has the model's own width"),
          accepted<EmbeddingRequest>("user", "nobody is told apart")};
}

/// A document: a text, or an object with one.
std::string document_text(const Parameter& parameter) {
  if (!parameter.json().is_object()) return parameter.string();
  const protocol::Json* text = parameter.find("text");
  if (text == nullptr) parameter.refuse("has no 'text'");
  return Parameter(parameter.name() + ".text", *text).string();
}

ParameterRules<RerankRequest> rerank_rules() {
  return {mapped<RerankRequest>("model", "as in /v1/chat/completions",
                                [](const Parameter& parameter, RerankRequest& request) {
                                  request.model = parameter.string();
                                }),
          mapped<RerankRequest>("query", "what the documents are scored for",
                                [](const Parameter& parameter, RerankRequest& request) {
                                  request.query = parameter.string();
                                }),
          mapped<RerankRequest>("documents", "texts, or objects with a text",
                                [](const Parameter& parameter, RerankRequest& request) {
                                  for (const Parameter& document : parameter.elements()) {
                                    request.documents.push_back(document_text(document));
                                  }
                                }),
          mapped<RerankRequest>("top_n", "how many of the best are returned",
                                [](const Parameter& parameter, RerankRequest& request) {
                                  request.most_results = static_cast<int>(
                                      parameter.integer(1, std::numeric_limits<int>::max()));
                                }),
          mapped<RerankRequest>("return_documents", "the texts come back with the scores",
                                [](const Parameter& parameter, RerankRequest& request) {
                                  request.return_documents = parameter.boolean();
                                })};
}

}  // namespace

EmbeddingRequest parse_embedding(const protocol::Json& body) {
  EmbeddingRequest request;
  apply_rules(body, embedding_rules(), request);
  protocol::require_member(body, "input");
  return request;
}

RerankRequest parse_rerank(const protocol::Json& body) {
  RerankRequest request;
  apply_rules(body, rerank_rules(), request);
  protocol::require_member(body, "query");
  protocol::require_member(body, "documents");
  return request;
}

void append_embedding_rows(std::vector<protocol::ParameterRow>& rows) {
  append_rows(rows, "/v1/embeddings", embedding_rules());
  append_rows(rows, "/v1/rerank", rerank_rules());
}

}  // namespace espalier::server::openai
