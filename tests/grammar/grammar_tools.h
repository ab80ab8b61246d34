#pragma once

#include <memory>
#include <optional>
#include <string>

#include "grammar/grammar.h"
#include "support/text_cases.h"

namespace espalier::grammar {

/// A compiler for one of the fixtures' tokenizers, token 0 ending texts; null where they are
/// absent.
struct Tools {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<Compiler> compiler;

  static std::optional<Tools> load(const std::string& family) {
    for (const auto& folder : tests::text_cases("tokenizers")) {
      if (folder.filename() != family) continue;
      const auto unpacked = tests::tokenizer_folder(folder);
      const auto tokenizer = tokenizer::load_tokenizer(unpacked->path());
      return Tools{tokenizer, make_compiler(tokenizer, tokenizer->vocabulary_size(), {0})};
    }
    return std::nullopt;
  }
};

/// One set of tools for all tests of the process: tables of vocabularies take a while.
inline const std::optional<Tools>& tools() {
  static const std::optional<Tools> loaded = Tools::load("smollm2");
  return loaded;
}

}  // namespace espalier::grammar
