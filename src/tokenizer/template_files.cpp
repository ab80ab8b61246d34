#include "tokenizer/template_files.h"

#include <vector>

#include "base/error.h"
#include "tokenizer/json_file.h"

namespace espalier::tokenizer {
namespace {

/// `chat_template` is one source or a list of named ones.
void add_templates(const nlohmann::json& config, const std::filesystem::path& path,
                   std::map<std::string, std::string>& variants) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return;
  if (found->is_string()) {
    variants["default"] = found->get<std::string>();
    return;
  }
  if (!found->is_array()) {
    throw base::LoadError(path.string() + ": chat_template must be text or a list.");
  }
  for (const auto& entry : *found) {
    const bool named = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                       entry.contains("template") && entry["template"].is_string();
    if (!named) {
      throw base::LoadError(path.string() +
                            ": each entry of chat_template must have a name and a template.");
    }
    variants[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  }
}

/// Special tokens are written as text or as an object with the text in `content`.
void add_special_tokens(const nlohmann::json& config, std::map<std::string, std::string>& tokens) {
  for (const auto& [name, value] : config.items()) {
    if (!name.ends_with("_token")) continue;
    if (value.is_string()) {
      tokens[name] = value.get<std::string>();
    } else if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      tokens[name] = value["content"].get<std::string>();
    }
  }
}

void add_further_templates(const std::filesystem::path& folder,
                           std::map<std::string, std::string>& variants) {
  if (!std::filesystem::is_directory(folder)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    variants[entry.path().stem().string()] = read_text_file(entry.path());
  }
}

}  // namespace

TemplateFiles read_template_files(const std::filesystem::path& folder) {
  TemplateFiles files;
  add_special_tokens(read_json_object(folder / "special_tokens_map.json"), files.special_tokens);
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto config = read_json_object(folder / name);
    add_templates(config, folder / name, files.variants);
    add_special_tokens(config, files.special_tokens);
  }
  const auto plain = folder / "chat_template.jinja";
  if (std::filesystem::exists(plain)) files.variants["default"] = read_text_file(plain);
  add_further_templates(folder / "additional_chat_templates", files.variants);
  return files;
}

}  // namespace espalier::tokenizer
