#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "generation/engine.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace espalier::evaluation {

struct LogitsOptions {
  /// Tokens per forward pass. The logits do not depend on it.
  int chunk = 64;
  generation::KvType kv_type = generation::KvType::f32;
  /// Called after each row; may be empty.
  std::function<void(int done, int total)> progress = {};
};

/// Runs each row of `rows` (equally long) on its own and writes the tensor `logits`, f32 [B, T, V],
/// to a safetensors file, holding only one chunk's logits in memory. Throws `UsageError` for ids
/// beyond the vocabulary, rows beyond the model's context or a chunk below 1, and
/// `std::runtime_error` when writing fails.
void write_logits(models::Model& model, const std::vector<std::vector<tokenizer::TokenId>>& rows,
                  const std::filesystem::path& output, const LogitsOptions& options);

}  // namespace espalier::evaluation
