#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

namespace espalier::tokenizer {

/// The file's content. Throws `LoadError` when it cannot be read.
std::string read_text_file(const std::filesystem::path& path);

/// The JSON object in `path`; an empty object when there is no such file. Throws `LoadError` naming
/// the file when it is not a JSON object.
nlohmann::json read_json_object(const std::filesystem::path& path);

}  // namespace espalier::tokenizer
