#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace espalier::models {

/// The JSON value that a file of a checkpoint holds. Throws `LoadError` naming the file when it
/// cannot be opened or is not valid JSON.
nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace espalier::models
