#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "generation/engine.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace espalier::evaluation {

struct PerplexityOptions {
  int context = 512;
  /// mlx-lm's method instead of llama.cpp's.
  bool mlx_lm = false;
  /// mlx-lm's method: the most rows of `context` tokens that are scored.
  int samples = 256;
  generation::KvType kv_type = generation::KvType::f16;
  /// Called after each of `total` rows; may be empty.
  std::function<void(int done, int total)> progress = {};
};

struct PerplexityResult {
  double perplexity;
  double standard_error;  // of `perplexity`
  std::int64_t tokens;    // scored
};

/// The perplexity of `text`. llama.cpp's method: the text is cut into chunks of `context` tokens,
/// each chunk's first token is replaced by the start token where the vocabulary adds one, and only
/// tokens in a chunk's second half are scored. mlx-lm's: rows of `context` tokens, every token but
/// the first of a row scored. What does not fill a chunk is dropped. Throws `UsageError` for a
/// context that is too short or beyond the model's, or a text shorter than two chunks (mlx-lm's
/// method: one).
PerplexityResult perplexity(models::Model& model, const tokenizer::Tokenizer& tokenizer,
                            std::string_view text, const PerplexityOptions& options);

/// The same for tokens; `start` replaces the first of each chunk in llama.cpp's method. Throws
/// `UsageError` also for ids beyond the vocabulary.
PerplexityResult perplexity(models::Model& model, const std::vector<tokenizer::TokenId>& tokens,
                            std::optional<tokenizer::TokenId> start,
                            const PerplexityOptions& options);

}  // namespace espalier::evaluation
