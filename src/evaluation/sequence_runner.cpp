#include "evaluation/sequence_runner.h"

#include <algorithm>

#include "generation/load_options.h"
#include "kernels/primitive.h"

namespace espalier::evaluation {

namespace mx = mlx::core;

namespace {

int blocks_for(int positions) {
  return (std::max(positions, 1) + kernels::kv_block_tokens - 1) / kernels::kv_block_tokens;
}

}  // namespace

SequenceRunner::SequenceRunner(models::Model& model, int positions, generation::KvType kv_type)
    : model_(model),
      pool_(model.kv_layers(), blocks_for(positions), generation::kv_dtype(kv_type),
            {.layers = model.recurrent_layers(), .slots = 1}) {
  restart();
}

void SequenceRunner::restart() {
  state_.reset();
  state_.emplace(pool_);
}

mx::array SequenceRunner::feed(std::span<const TokenId> tokens, int wanted) {
  const int rows = static_cast<int>(tokens.size());
  models::Batch batch;
  batch.tokens.assign(tokens.begin(), tokens.end());
  batch.sequences.push_back({.first_row = 0, .rows = rows, .state = &*state_});
  for (int row = rows - wanted; row < rows; ++row) batch.logits_rows.push_back(row);
  mx::array logits = model_.forward(batch, pool_);
  logits.eval();
  return kernels::row_contiguous(logits);
}

mx::array SequenceRunner::prefill(std::span<const TokenId> tokens, int chunk) {
  while (static_cast<int>(tokens.size()) > chunk) {
    feed(tokens.first(chunk), 0);
    tokens = tokens.subspan(chunk);
  }
  return feed(tokens, 1);
}

}  // namespace espalier::evaluation
