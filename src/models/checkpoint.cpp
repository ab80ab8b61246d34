#include "models/checkpoint.h"

#include <algorithm>
#include <array>
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

/// Models that see or hear, around a text model with settings of its own: `model_type` of the
/// whole.
constexpr std::array<std::string_view, 13> wrappers = {
    "aya_vision", "cohere2_vision", "gemma3",   "gemma4",  "internvl",    "lfm2_vl", "llama4",
    "llava",      "llava_next",     "mistral3", "qwen3_5", "qwen3_5_moe", "voxtral"};

/// The settings of the text model, with those that are said of the whole.
nlohmann::json unwrap_text(nlohmann::json config) {
  if (!config.is_object() || !config.contains("text_config")) {
    return config;
  }
  const nlohmann::json type = config.value("model_type", nlohmann::json());
  if (!type.is_string() || std::ranges::find(wrappers, type.get<std::string>()) == wrappers.end()) {
    return config;
  }
  nlohmann::json text = config["text_config"];
  if (!text.is_object()) {
    return config;
  }
  for (const char* key : {"quantization", "quantization_config", "tie_word_embeddings"}) {
    if (config.contains(key)) {
      text[key] = config[key];
    }
  }
  for (const char* key : {"dtype", "torch_dtype", "eos_token_id"}) {
    if (config.contains(key)) {
      text.emplace(key, config[key]);
    }
  }
  return text;
}

}  // namespace

ConfigReader open_config(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw base::LoadError(path.string() + ": cannot be opened.");
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  try {
    return ConfigReader(path.string(),
                        unwrap_text(nlohmann::json::parse(spell_out_infinity(text))));
  } catch (const nlohmann::json::parse_error& error) {
    throw base::LoadError(path.string() + ": not valid JSON at byte " + std::to_string(error.byte) +
                          ".");
  }
}

}  // namespace espalier::models
