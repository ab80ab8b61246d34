#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "evaluation/summary.h"

namespace espalier::evaluation {

struct FitOptions {
  /// Bytes that may be taken; 0: what this machine has left.
  std::uint64_t memory = 0;
  int prefill_chunk = 512;
  int running = 1;  // requests at once, each with the whole context
};

/// What a model needs to run, from headers alone.
struct FitReport {
  ModelSummary model;
  int context = 0;           // positions the model was made for
  std::uint64_t memory = 0;  // bytes that may be taken
  /// Bytes that recurrent layers keep of each request, however long it is.
  std::uint64_t state_per_request = 0;
  /// Bytes of private memory that the weights take once repacked; none where they stay in place.
  std::uint64_t repacked = 0;
  std::uint64_t workspace = 0;  // bytes beside weights, keys and values, at most
  /// By the format of stored keys and values ("f16", "bf16", "f32").
  struct State {
    /// Of a token in all layers, until those of limited reach pass the first.
    std::uint64_t bytes_per_token = 0;
    std::int64_t largest_context = 0;    // at most `context`; 0 when not even the weights fit
    std::uint64_t bytes_of_largest = 0;  // that a request with so much context holds in the end
  };
  std::map<std::string, State> state;
  bool fits = false;  // weights, workspace and some context, with the default format
};

/// Throws `LoadError` for a model that is damaged or not supported.
FitReport fit(const std::filesystem::path& path, const FitOptions& options);

}  // namespace espalier::evaluation
