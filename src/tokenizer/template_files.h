#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace espalier::tokenizer {

/// A checkpoint folder's chat templates and special token strings.
struct TemplateFiles {
  std::map<std::string, std::string> variants;        // name → source; empty when there are none
  std::map<std::string, std::string> special_tokens;  // bos_token, eos_token, …
};

/// Reads tokenizer_config.json, chat_template.json, chat_template.jinja and
/// additional_chat_templates/, later ones winning as in transformers, and special_tokens_map.json.
/// Throws `LoadError` naming the file that is malformed.
TemplateFiles read_template_files(const std::filesystem::path& folder);

}  // namespace espalier::tokenizer
