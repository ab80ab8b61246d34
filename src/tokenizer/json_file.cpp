#include "tokenizer/json_file.h"

#include <fstream>
#include <iterator>

#include "base/error.h"

namespace espalier::tokenizer {

std::string read_text_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throw base::LoadError("cannot read " + path.string() + ".");
  return text;
}

nlohmann::json read_json_object(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return nlohmann::json::object();
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(read_text_file(path));
  } catch (const nlohmann::json::exception& error) {
    throw base::LoadError(path.string() + " is not valid JSON: " + error.what() + ".");
  }
  if (!value.is_object()) throw base::LoadError(path.string() + " must hold a JSON object.");
  return value;
}

}  // namespace espalier::tokenizer
