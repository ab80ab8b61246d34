#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

#include "models/descriptor.h"

namespace espalier::models {

/// The `config.json` that says the same as a `params.json` in the format that Meta and Mistral
/// publish their own checkpoints with. Throws `LoadError` naming the file and a key that is
/// missing, or has no counterpart.
nlohmann::json config_of_params(const std::filesystem::path& path, const nlohmann::json& params);

/// Changes a description to what such a checkpoint holds: its names, and rotations that pair
/// neighbouring inputs.
void set_original_layout(Descriptor& decoder);

}  // namespace espalier::models
