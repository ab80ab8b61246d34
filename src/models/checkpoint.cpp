#include "models/checkpoint.h"

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/error.h"

namespace espalier::models {
namespace {

/// Python writes a bare Infinity, which JSON does not have; transformers 5 writes an object
/// instead.
std::string spell_out_infinity(const std::string& text) {
  constexpr std::string_view bare = "Infinity";
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!quoted && text.compare(i, bare.size(), bare) == 0) {
      result += R"({"__float__": "Infinity"})";
      i += bare.size() - 1;
      continue;
    }
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      result += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    }
    result += text[i];
  }
  return result;
}

}  // namespace

ConfigReader open_config(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw base::LoadError(path.string() + ": cannot be opened.");
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  try {
    return ConfigReader(path.string(), nlohmann::json::parse(spell_out_infinity(text)));
  } catch (const nlohmann::json::parse_error& error) {
    throw base::LoadError(path.string() + ": not valid JSON at byte " + std::to_string(error.byte) +
                          ".");
  }
}

}  // namespace espalier::models
