#pragma once

#include <memory>

#include "cli/model_options.h"
#include "models/model.h"

namespace espalier::cli {

/// Loads the weights for a verb that computes without an engine, and sets the compute threads.
/// Throws `LoadError`.
std::unique_ptr<models::Model> load_offline_model(const ModelOptions& options);

}  // namespace espalier::cli
