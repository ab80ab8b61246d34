#pragma once

#include "arrays/gguf.h"
#include "generation/bundle.h"

namespace espalier::generation {

/// The vocabulary below `tokenizer.ggml.`. Throws `LoadError` when there is none or a key has
/// another type than expected.
tokenizer::GgufVocabulary read_gguf_vocabulary(const arrays::GgufMetadata& metadata);

/// Everything of a `TextBundle` that GGUF metadata holds.
TextBundle read_gguf_bundle(const arrays::GgufMetadata& metadata);

}  // namespace espalier::generation
