#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generation/embedder.h"
#include "server/protocol/parameter.h"

namespace espalier::server::openai {

/// A request to `/v1/embeddings`.
struct EmbeddingRequest {
  std::string model;
  std::vector<generation::EmbeddingInput> inputs;
  bool base64 = false;
};

/// A request to `/v1/rerank`, as Cohere and Jina have it.
struct RerankRequest {
  std::string model;
  std::string query;
  std::vector<std::string> documents;
  std::optional<int> most_results;
  bool return_documents = false;
};

/// Throw `RequestError` 400 naming the parameter that is missing, unknown or wrong.
EmbeddingRequest parse_embedding(const protocol::Json& body);
RerankRequest parse_rerank(const protocol::Json& body);

/// Adds the parameters of both to the table.
void append_embedding_rows(std::vector<protocol::ParameterRow>& rows);

}  // namespace espalier::server::openai
