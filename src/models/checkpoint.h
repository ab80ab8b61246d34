#pragma once

#include <filesystem>

#include "models/config_reader.h"

namespace espalier::models {

/// Reads a checkpoint's `config.json`: of a model that also sees or hears, the text model's
/// settings. Throws `LoadError` when it cannot be opened or is no JSON.
ConfigReader open_config(const std::filesystem::path& path);

}  // namespace espalier::models
