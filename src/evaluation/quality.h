#pragma once

#include <functional>
#include <vector>

#include "generation/engine.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace espalier::evaluation {

struct QualityOptions {
  /// Tokens of each of the `rows` pieces of text, of which every position is compared.
  int context = 512;
  /// The most pieces; a shorter text has fewer.
  int rows = 4;
  generation::KvType kv_type = generation::KvType::f16;
  /// Called after each of `total` pieces; may be empty.
  std::function<void(int done, int total)> progress = {};
};

struct Quality {
  double divergence;  // mean Kullback-Leibler divergence, nats
  double largest;     // of one position
  double same_top;    // share of positions whose likeliest token is the same
  int positions;
};

/// How far the distributions of `other` are from those of `exact`, the same checkpoint computed
/// exactly, over `tokens`. Throws `UsageError` when the tokens do not fill one piece or are beyond
/// the vocabulary, or the context is beyond the model's.
Quality compare(models::Model& exact, models::Model& other,
                const std::vector<tokenizer::TokenId>& tokens, const QualityOptions& options);

}  // namespace espalier::evaluation
