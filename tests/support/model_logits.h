#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "mlx/mlx.h"
#include "models/model.h"
#include "state/kv_pool.h"

namespace espalier::tests {

/// So many token ids that differ, all below 303.
inline std::vector<std::int32_t> different_tokens(int count) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(3 + 7 * i % 300);
  return tokens;
}

/// The logits after each of at most 128 tokens, [T, V], of a checkpoint that is loaded for it.
inline std::vector<float> model_logits(const std::filesystem::path& path,
                                       std::vector<std::int32_t> tokens,
                                       const models::LoadOptions& options) {
  const auto model = models::load_model(path, options);
  state::KvPool pool(model->kv_layers(), 4, mlx::core::float32);
  state::SequenceState state(pool);
  const int rows = static_cast<int>(tokens.size());
  models::Batch batch;
  batch.tokens = std::move(tokens);
  for (int i = 0; i < rows; ++i) batch.logits_rows.push_back(i);
  batch.sequences.push_back({.first_row = 0, .rows = rows, .state = &state});
  mlx::core::array result = model->forward(batch, pool);
  result.eval();
  return {result.data<float>(), result.data<float>() + result.size()};
}

/// What computes in floats, but for what a file's own types round.
inline models::LoadOptions in_floats() {
  return {.dtype = mlx::core::float32, .activations = layers::ActivationFormat::f32};
}

}  // namespace espalier::tests
