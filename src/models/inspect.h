#pragma once

#include <filesystem>
#include <memory>

#include "arrays/tensor_file.h"
#include "models/descriptor.h"

namespace espalier::models {

/// What a checkpoint's settings and headers say; no weight is read.
struct Inspection {
  Descriptor descriptor;
  std::shared_ptr<const arrays::TensorFile> tensors;
};

/// Throws `LoadError` as `load_model` does for settings.
Inspection inspect_model(const std::filesystem::path& path);

}  // namespace espalier::models
