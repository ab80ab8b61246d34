#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "generation/random.h"
#include "kernels/attention.h"
#include "mlx/mlx.h"
#include "models/model.h"

namespace espalier::generation {

/// A model whose logits are a hash of all tokens so far. It keeps the tokens by pool KV block, so
/// sequences that got each other's KV blocks, gaps or wrong positions change its answers.
class FakeModel : public models::Model {
 public:
  static constexpr int vocabulary = 64;
  static constexpr int context = 256;
  /// A sequence that holds this token has NaN logits.
  static constexpr int poison = 63;

  /// Called at the start of each forward pass, on the engine's thread; may block or throw.
  using Hook = std::function<void(const models::Batch&)>;

  explicit FakeModel(Hook hook = {}) : hook_(std::move(hook)) {
    descriptor_.family = "fake";
    descriptor_.vocabulary = vocabulary;
    descriptor_.context = context;
    descriptor_.end_tokens = {1};
  }

  static std::vector<float> logits_after(const std::vector<std::int32_t>& tokens) {
    std::uint64_t hash = 1469598103934665603ULL;
    for (const std::int32_t token : tokens) {
      hash = (hash ^ static_cast<std::uint64_t>(token)) * 1099511628211ULL;
      if (token == poison) {
        return std::vector<float>(vocabulary, std::numeric_limits<float>::quiet_NaN());
      }
    }
    std::vector<float> logits;
    for (int id = 0; id < vocabulary; ++id) {
      logits.push_back(static_cast<float>(8 * uniform(hash, id) - 4));
    }
    logits[poison] = -20;
    return logits;
  }

  const models::Descriptor& descriptor() const override { return descriptor_; }
  std::vector<state::KvLayerShape> kv_layers() const override { return {{1, 2}}; }
  std::size_t weight_bytes() const override { return 12345; }

  mlx::core::array forward(const models::Batch& batch, state::KvPool&) override {
    if (hook_) {
      hook_(batch);
    }
    std::vector<std::vector<float>> rows(batch.tokens.size());
    for (const models::Batch::Sequence& sequence : batch.sequences) {
      const int position = sequence.state->length();
      sequence.state->extend(sequence.rows);
      const auto place = [&](int at) -> std::int32_t& {
        constexpr int size = kernels::kv_block_tokens;
        return memory_[sequence.state->block_table().at(at / size) * size + at % size];
      };
      for (int row = 0; row < sequence.rows; ++row) {
        place(position + row) = batch.tokens[sequence.first_row + row];
      }
      for (int row = 0; row < sequence.rows; ++row) {
        std::vector<std::int32_t> history;
        for (int at = 0; at <= position + row; ++at) {
          history.push_back(place(at));
        }
        rows[sequence.first_row + row] = logits_after(history);
      }
      sequence.state->advance(sequence.rows);
    }
    std::vector<float> logits;
    for (const int row : batch.logits_rows) {
      logits.insert(logits.end(), rows[row].begin(), rows[row].end());
    }
    return mlx::core::array(logits.begin(),
                            {static_cast<int>(batch.logits_rows.size()), vocabulary},
                            mlx::core::float32);
  }

 private:
  Hook hook_;
  models::Descriptor descriptor_{};
  std::map<int, std::int32_t> memory_;
};

}  // namespace espalier::generation
