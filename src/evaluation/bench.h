#pragma once

#include <functional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "generation/engine.h"
#include "models/model.h"

namespace espalier::evaluation {

struct BenchOptions {
  int prompt = 512;  // tokens of the prefill measured; 0: none
  int gen = 128;     // tokens decoded one by one; 0: none
  int depth = 0;     // tokens that already stand before either
  int repeat = 5;
  int chunk = 512;  // prefill tokens per forward pass
  generation::KvType kv_type = generation::KvType::f16;
  /// Called after each measurement; may be empty.
  std::function<void(int done, int total)> progress = {};
};

struct BenchResult {
  BenchOptions options;
  std::vector<double> prefill;  // tokens per second, one figure a repetition
  std::vector<double> decode;
};

double median(std::vector<double> samples);

/// Measures as llama-bench does: the prompt in one go, then from a sequence of its own `gen` tokens
/// one at a time, each the likeliest after the one before; both `repeat` times after a warm-up, on
/// the compute pool as it is. Throws `UsageError` when nothing is to be measured or the model's
/// context is too short.
BenchResult bench(models::Model& model, const BenchOptions& options);

/// `{prefill_tokens_per_s, decode_tokens_per_s, …}`: medians, samples and settings; a figure that
/// was not measured is null.
nlohmann::json to_json(const BenchResult& result);

}  // namespace espalier::evaluation
