#include "models/json_file.h"

#include <fstream>
#include <string>

#include "base/error.h"

namespace espalier::models {

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw base::LoadError(path.string() + ": cannot be opened.");
  }
  try {
    return nlohmann::json::parse(file);
  } catch (const nlohmann::json::parse_error& error) {
    throw base::LoadError(path.string() + ": not valid JSON at byte " + std::to_string(error.byte) +
                          ".");
  } catch (const nlohmann::json::out_of_range&) {
    throw base::LoadError(path.string() + ": a number in it is out of range.");
  }
}

}  // namespace espalier::models
