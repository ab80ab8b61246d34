#include "generation/bundle_gguf.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "base/error.h"

namespace espalier::generation {
namespace {

using tokenizer::TokenId;

constexpr std::string_view prefix = "tokenizer.ggml.";
constexpr std::int32_t control_token = 3;

/// Tokens that end a turn or a text in the families that use them: not every file names them under
/// a key of its own.
constexpr std::array<std::string_view, 12> end_names = {
    "<|im_end|>",    "<|eot_id|>", "<|eom_id|>", "<end_of_turn>",   "<|end|>",
    "<|endoftext|>", "<|return|>", "<|call|>",   "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>",
    "<|eot|>",       "</s>",
};

std::string key(std::string_view name) { return std::string(prefix) + std::string(name); }

std::optional<TokenId> token(const arrays::GgufMetadata& metadata, std::string_view name) {
  const auto id = metadata.integer(key(name));
  // Some converters write -1, or its unsigned form, for "none".
  if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) return std::nullopt;
  return static_cast<TokenId>(*id);
}

template <typename To, typename From>
std::vector<To> narrowed(const std::optional<std::vector<From>>& values) {
  if (!values) return {};
  std::vector<To> result;
  result.reserve(values->size());
  for (const From value : *values) result.push_back(static_cast<To>(value));
  return result;
}

std::vector<std::string> strings(const arrays::GgufMetadata& metadata, std::string_view name) {
  const auto* found = metadata.strings(key(name));
  return found == nullptr ? std::vector<std::string>{} : *found;
}

std::map<std::string, std::string> special_token_names(
    const tokenizer::GgufVocabulary& vocabulary) {
  std::map<std::string, std::string> names;
  const auto add = [&](const char* name, std::optional<TokenId> id) {
    if (id && static_cast<std::size_t>(*id) < vocabulary.tokens.size()) {
      names[name] = vocabulary.tokens[static_cast<std::size_t>(*id)];
    }
  };
  add("bos_token", vocabulary.bos);
  add("eos_token", vocabulary.eos);
  add("unk_token", vocabulary.unknown);
  add("pad_token", vocabulary.padding);
  add("sep_token", vocabulary.separator);
  add("mask_token", vocabulary.mask);
  return names;
}

std::map<std::string, std::string> template_variants(const arrays::GgufMetadata& metadata) {
  std::map<std::string, std::string> variants;
  constexpr std::string_view name = "tokenizer.chat_template";
  if (const auto source = metadata.string(name)) variants["default"] = *source;
  const std::string named = std::string(name) + ".";
  for (const auto& [key, value] : metadata.values()) {
    const auto* source = std::get_if<std::string>(&value);
    if (source != nullptr && key.starts_with(named)) variants[key.substr(named.size())] = *source;
  }
  return variants;
}

std::vector<TokenId> end_tokens(const arrays::GgufMetadata& metadata,
                                const tokenizer::GgufVocabulary& vocabulary) {
  std::vector<TokenId> ends;
  const auto add = [&](std::optional<TokenId> id) {
    if (id && std::ranges::find(ends, *id) == ends.end()) ends.push_back(*id);
  };
  add(vocabulary.eos);
  add(token(metadata, "eot_token_id"));
  add(token(metadata, "eom_token_id"));
  for (std::size_t id = 0; id < vocabulary.types.size(); ++id) {
    if (vocabulary.types[id] != control_token || id >= vocabulary.tokens.size()) continue;
    const bool ends_text = std::ranges::find(end_names, vocabulary.tokens[id]) != end_names.end();
    if (ends_text) add(static_cast<TokenId>(id));
  }
  return ends;
}

}  // namespace

tokenizer::GgufVocabulary read_gguf_vocabulary(const arrays::GgufMetadata& metadata) {
  const bool is_bert = metadata.string(key("model")) == "bert";
  return {
      .model = metadata.require_string(key("model")),
      .pre = metadata.string(key("pre")).value_or(""),
      .tokens = strings(metadata, "tokens"),
      .types = narrowed<std::int32_t>(metadata.integers(key("token_type"))),
      .scores = narrowed<float>(metadata.numbers(key("scores"))),
      .merges = strings(metadata, "merges"),
      .precompiled_charsmap =
          narrowed<std::uint8_t>(metadata.integers(key("precompiled_charsmap"))),
      .bos = is_bert ? token(metadata, "cls_token_id") : token(metadata, "bos_token_id"),
      .eos = token(metadata, "eos_token_id"),
      .unknown = token(metadata, "unknown_token_id"),
      .padding = token(metadata, "padding_token_id"),
      // The key is spelt so.
      .separator = token(metadata, "seperator_token_id"),
      .mask = token(metadata, "mask_token_id"),
      .add_bos = metadata.boolean(key("add_bos_token")),
      .add_eos = metadata.boolean(key("add_eos_token")),
      .add_space_prefix = metadata.boolean(key("add_space_prefix")),
      .remove_extra_whitespaces = metadata.boolean(key("remove_extra_whitespaces")),
  };
}

TextBundle read_gguf_bundle(const arrays::GgufMetadata& metadata) {
  const auto vocabulary = read_gguf_vocabulary(metadata);
  TextBundle bundle;
  bundle.tokenizer = tokenizer::build_tokenizer(vocabulary, metadata.path());
  bundle.template_variants = template_variants(metadata);
  bundle.special_tokens = special_token_names(vocabulary);
  bundle.end_tokens = end_tokens(metadata, vocabulary);
  return bundle;
}

}  // namespace espalier::generation
