#include "conversion/tokenizer_files.h"

#include <string>

#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "generation/bundle.h"
#include "generation/bundle_gguf.h"
#include "tokenizer/tokenizer_json.h"

namespace espalier::conversion {
namespace {

using nlohmann::ordered_json;

void write_text(const std::filesystem::path& path, const std::string& text) {
  base::OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.publish(base::OutputFile::Existing::replace);
}

ordered_json chat_templates(const std::map<std::string, std::string>& variants) {
  if (variants.size() == 1) return variants.begin()->second;
  ordered_json list = ordered_json::array();
  for (const auto& [name, source] : variants) {
    list.push_back({{"name", name}, {"template", source}});
  }
  return list;
}

}  // namespace

void write_tokenizer_files(const arrays::GgufMetadata& metadata,
                           const std::filesystem::path& folder) {
  if (metadata.string("tokenizer.ggml.model").value_or("none") == "none") return;
  const tokenizer::GgufVocabulary vocabulary = generation::read_gguf_vocabulary(metadata);
  const generation::TextBundle bundle = generation::read_gguf_bundle(metadata);
  write_text(folder / "tokenizer.json", tokenizer::tokenizer_json(vocabulary, metadata.path()));

  ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"clean_up_tokenization_spaces", false}};
  for (const auto& [name, text] : bundle.special_tokens) config[name] = text;
  if (!bundle.template_variants.empty()) {
    config["chat_template"] = chat_templates(bundle.template_variants);
  }
  write_text(folder / "tokenizer_config.json", config.dump(2) + "\n");

  ordered_json generation = ordered_json::object();
  if (vocabulary.bos) generation["bos_token_id"] = *vocabulary.bos;
  if (!bundle.end_tokens.empty()) generation["eos_token_id"] = bundle.end_tokens;
  if (vocabulary.padding) generation["pad_token_id"] = *vocabulary.padding;
  write_text(folder / "generation_config.json", generation.dump(2) + "\n");
}

}  // namespace espalier::conversion
