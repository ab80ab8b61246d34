#include "generation/bundle.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "arrays/gguf.h"
#include "base/error.h"
#include "generation/bundle_gguf.h"
#include "tokenizer/json_file.h"
#include "tokenizer/template_files.h"

namespace espalier::generation {
namespace {

using tokenizer::TokenId;

/// Reads a number, leaving `target` as it is when the key is absent or null.
template <typename T>
void read_number(const nlohmann::json& config, const char* key, const std::filesystem::path& path,
                 T& target) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return;
  if (!found->is_number()) throw base::LoadError(path.string() + ": " + key + " must be a number.");
  target = found->get<T>();
}

SamplingParameters read_sampling(const nlohmann::json& config, const std::filesystem::path& path) {
  SamplingParameters sampling;
  read_number(config, "temperature", path, sampling.temperature);
  read_number(config, "top_k", path, sampling.top_k);
  read_number(config, "top_p", path, sampling.top_p);
  read_number(config, "min_p", path, sampling.min_p);
  read_number(config, "repetition_penalty", path, sampling.repetition_penalty);
  return sampling;
}

/// `eos_token_id` is one id or a list of them.
void read_end_tokens(const nlohmann::json& config, const std::filesystem::path& path,
                     std::vector<TokenId>& ends) {
  const auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null()) return;
  const auto add = [&](const nlohmann::json& value) {
    if (!value.is_number_integer()) {
      throw base::LoadError(path.string() + ": eos_token_id must be a token id or a list of them.");
    }
    const auto id = value.get<TokenId>();
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  };
  if (found->is_array()) {
    for (const auto& value : *found) add(value);
  } else {
    add(*found);
  }
}

TextBundle read_folder_bundle(const std::filesystem::path& folder) {
  TextBundle bundle;
  bundle.tokenizer = tokenizer::load_tokenizer(folder);
  auto files = tokenizer::read_template_files(folder);
  bundle.template_variants = std::move(files.variants);
  bundle.special_tokens = std::move(files.special_tokens);
  const auto generation = folder / "generation_config.json";
  const auto generation_config = tokenizer::read_json_object(generation);
  bundle.sampling_defaults = read_sampling(generation_config, generation);
  read_end_tokens(generation_config, generation, bundle.end_tokens);
  if (bundle.end_tokens.empty()) {
    const auto config = folder / "config.json";
    read_end_tokens(tokenizer::read_json_object(config), config, bundle.end_tokens);
  }
  const auto eos = bundle.tokenizer->eos();
  if (eos && std::ranges::find(bundle.end_tokens, *eos) == bundle.end_tokens.end()) {
    bundle.end_tokens.push_back(*eos);
  }
  return bundle;
}

}  // namespace

TextBundle load_text_bundle(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return read_folder_bundle(path);
  return read_gguf_bundle(arrays::GgufFile::open(path)->metadata());
}

}  // namespace espalier::generation
