#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "generation/engine.h"
#include "generation/request.h"

namespace espalier::generation {

/// A text, or its token ids.
using EmbeddingInput = std::variant<std::string, std::vector<tokenizer::TokenId>>;

/// Vectors, and how many tokens they were made from.
struct EmbeddingResult {
  std::vector<std::vector<float>> vectors;
  std::size_t tokens = 0;
};

/// What a loaded sequence model is. Plain data.
struct EmbedderInfo {
  ModelInfo model;
  int dimensions;   // of an embedding, or a classifier's classes
  int most_tokens;  // of a text; longer ones are cut
  bool classifies;  // scores of classes instead of embeddings
};

/// A model that gives one vector for each text: an embedding model, or a classifier or
/// cross-encoder. All calls are thread-safe; one computes at a time. No MLX type crosses this
/// header.
class Embedder {
 public:
  /// Whether the path holds such a model. Throws `LoadError`.
  static bool holds(const std::filesystem::path& path);
  /// Loads it. Throws `LoadError`.
  static std::unique_ptr<Embedder> load(const std::filesystem::path& path,
                                        const EngineOptions& options);
  virtual ~Embedder() = default;

  virtual const EmbedderInfo& info() const = 0;
  /// One vector for each text, which is cut at the model's limit. The checkpoint's default prompt,
  /// or the one named `prompt`, goes before texts. Throws `RequestError` for an unknown prompt, ids
  /// outside the vocabulary and a list of ids that is empty or too long.
  virtual EmbeddingResult embed(const std::vector<EmbeddingInput>& inputs,
                                const std::string& prompt = {}) = 0;
  /// For each document a cross-encoder's vector of scores, as the matrix gives them. Throws
  /// `RequestError` unless the model classifies.
  virtual EmbeddingResult score(const std::string& query,
                                const std::vector<std::string>& documents) = 0;
};

/// Stands for the engine of a model that generates no text: every request gets a `RequestError`
/// 400.
std::unique_ptr<Engine> refuse_generation(const ModelInfo& info);

}  // namespace espalier::generation
