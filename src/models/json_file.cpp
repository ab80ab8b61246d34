#include "models/json_file.h"

#include <fstream>
#include <iterator>

#include "base/error.h"

namespace espalier::models {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw base::LoadError(path.string() + ": cannot be opened.");
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

nlohmann::json parse_json(const std::string& text, const std::filesystem::path& path) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw base::LoadError(path.string() + ": not valid JSON at byte " + std::to_string(error.byte) +
                          ".");
  } catch (const nlohmann::json::out_of_range&) {
    throw base::LoadError(path.string() + ": a number in it is out of range.");
  }
}

nlohmann::json read_json(const std::filesystem::path& path) {
  return parse_json(read_text(path), path);
}

}  // namespace espalier::models
