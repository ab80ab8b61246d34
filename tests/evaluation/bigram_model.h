#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "models/model.h"

namespace espalier::tests {

/// A model whose next token depends on the last alone: the logits after token t are the logarithms
/// of row t of a table of probabilities, plus t. Remembers the batches it saw.
class BigramModel : public models::Model {
 public:
  explicit BigramModel(std::vector<std::vector<double>> probabilities, int context = 64)
      : probabilities_(std::move(probabilities)) {
    descriptor_.vocabulary = static_cast<int>(probabilities_.size());
    descriptor_.context = context;
  }

  const models::Descriptor& descriptor() const override { return descriptor_; }
  std::vector<state::KvLayerShape> kv_layers() const override {
    return {{.kv_heads = 1, .head_dim = 8}};
  }
  std::size_t weight_bytes() const override { return 0; }

  mlx::core::array forward(const models::Batch& batch, state::KvPool&) override {
    for (const auto& sequence : batch.sequences) {
      positions.push_back(sequence.state->length());
      sequence.state->extend(sequence.rows);
      sequence.state->advance(sequence.rows);
    }
    seen.push_back(batch.tokens);
    const int width = descriptor_.vocabulary;
    std::vector<float> logits;
    for (const int row : batch.logits_rows) {
      const int token = batch.tokens[static_cast<std::size_t>(row)];
      for (const double probability : probabilities_[static_cast<std::size_t>(token)]) {
        logits.push_back(static_cast<float>(std::log(probability) + token));
      }
    }
    return mlx::core::array(logits.begin(), {static_cast<int>(batch.logits_rows.size()), width},
                            mlx::core::float32);
  }

  std::vector<std::vector<std::int32_t>> seen;
  std::vector<int> positions;

 private:
  std::vector<std::vector<double>> probabilities_;
  models::Descriptor descriptor_{};
};

}  // namespace espalier::tests
