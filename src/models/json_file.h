#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

namespace espalier::models {

/// A file of a checkpoint as text. Throws `LoadError` naming the file when it cannot be opened.
std::string read_text(const std::filesystem::path& path);

/// The JSON value of `text`, which came from the file at `path`. Throws `LoadError` naming the file
/// when it is not valid JSON or has a number that is out of range.
nlohmann::json parse_json(const std::string& text, const std::filesystem::path& path);

/// The JSON value that a file of a checkpoint holds. Throws what the two above throw.
nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace espalier::models
