#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace espalier::evaluation {

/// What a model's headers and configuration say about it.
struct ModelSummary {
  std::string container;  // "gguf" or "safetensors"
  std::string family;     // "llama"; `model_type` or GGUF's architecture
  std::int64_t parameters = 0;
  std::uint64_t weight_bytes = 0;                      // of all tensors, as stored
  std::map<std::string, std::uint64_t> bytes_by_type;  // "q4_1", "bf16", "affine 4 bit by 64"
  double bits_per_weight = 0;
};

/// Reads headers, no weights. Throws `LoadError` for a model that is damaged.
ModelSummary summarize(const std::filesystem::path& path);

}  // namespace espalier::evaluation
