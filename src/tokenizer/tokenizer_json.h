#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace espalier::tokenizer {

/// The content of a `tokenizer.json` for a GGUF vocabulary; `source` is the path to show in
/// messages. Throws `LoadError` when the vocabulary cannot be used.
std::string tokenizer_json(const GgufVocabulary& vocabulary, const std::string& source);

}  // namespace espalier::tokenizer
