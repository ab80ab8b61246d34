#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/activation.h"
#include "models/config_reader.h"
#include "models/sequence_head.h"

namespace espalier::models {

/// What turns a sequence's rows into class scores: pool, then perhaps a dense map with a nonlinear
/// function and a norm, then the matrix to the classes.
struct ClassifierDescriptor {
  enum class Function { tanh, gelu };

  Pooling pooling;
  std::string dense = {};  // tensor names; empty: none
  bool dense_bias = true;
  Function function = Function::tanh;
  std::string norm = {};  // layer norm behind the function; empty: none
  float norm_eps = 0.0F;
  bool norm_bias = false;
  std::string output;
  bool output_bias = true;
  int labels;
};

/// That of an `...ForSequenceClassification` checkpoint; nothing for other architectures. Throws
/// `LoadError` for a family whose classifier is not known.
std::optional<ClassifierDescriptor> read_classifier(const ConfigReader& config);

}  // namespace espalier::models
