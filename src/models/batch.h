#pragma once

#include <cstdint>
#include <vector>

#include "state/kv_pool.h"

namespace espalier::models {

/// One ragged batch: prefill chunks and decode rows of different sequences side by side.
struct Batch {
  struct Sequence {
    int first_row;  // in [0, T)
    int rows;
    state::SequenceState* state;  // extended and advanced by the forward pass
  };

  std::vector<std::int32_t> tokens;            // [T]
  std::vector<std::int32_t> token_types = {};  // [T], of models that have them; empty: all 0
  std::vector<Sequence> sequences;
  std::vector<int> logits_rows;  // rows of [0, T) whose logits are wanted, in order
};

}  // namespace espalier::models
