#pragma once

#include <filesystem>
#include <memory>

#include "arrays/tensor_file.h"
#include "models/model.h"

namespace espalier::models {

/// As in models/model.h, with the tensors of `weights` in place of those in the folder or file.
std::unique_ptr<Model> load_model(const std::filesystem::path& path, const LoadOptions& options,
                                  std::shared_ptr<const arrays::TensorFile> weights);

}  // namespace espalier::models
