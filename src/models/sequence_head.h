#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "layers/activation.h"

namespace espalier::models {

/// How the rows of a sequence become one vector.
enum class Pooling { mean, mean_sqrt_length, max, first, last };

/// A linear map behind the pooling, in a folder of its own with `model.safetensors`.
struct DenseDescriptor {
  std::string folder;
  int inputs;
  int outputs;
  bool bias;
  bool tanh;  // else no nonlinear function
};

/// How a checkpoint turns text into one vector: `modules.json` of sentence-transformers and the
/// files it names.
struct EmbeddingDescriptor {
  std::vector<Pooling> pooling;  // of several the vectors lie side by side
  std::vector<DenseDescriptor> dense = {};
  bool normalize = false;
  std::optional<int> most_tokens = {};
  std::map<std::string, std::string> prompts = {};  // put before a text, by name
  std::string default_prompt = {};                  // name; empty: none
};

/// Reads it from a checkpoint's folder; nothing where the folder has no `modules.json`. Throws
/// `LoadError` for modules and settings that are not supported.
std::optional<EmbeddingDescriptor> read_embedding(const std::filesystem::path& folder);

}  // namespace espalier::models
