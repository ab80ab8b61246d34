#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "generation/engine.h"
#include "models/model.h"
#include "state/kv_pool.h"

namespace espalier::evaluation {

using tokenizer::TokenId;

/// Feeds one token sequence at a time to a model, in pieces of the caller's choice. Used from one
/// thread; the model must outlive it.
class SequenceRunner {
 public:
  /// `positions` is the longest sequence there will be.
  SequenceRunner(models::Model& model, int positions, generation::KvType kv_type);

  /// Forgets the sequence.
  void restart();

  /// Appends `tokens` and returns the evaluated f32 logits of the last `wanted` of them,
  /// [wanted, V], row after row. The ids are the caller's to check.
  mlx::core::array feed(std::span<const TokenId> tokens, int wanted);

  /// Appends `tokens` in pieces of at most `chunk` and returns the logits [1, V] of the last one.
  mlx::core::array prefill(std::span<const TokenId> tokens, int chunk);

 private:
  models::Model& model_;
  state::KvPool pool_;
  std::optional<state::SequenceState> state_;
};

}  // namespace espalier::evaluation
