#pragma once

#include <filesystem>

#include "arrays/gguf_writer.h"
#include "conversion/source.h"

namespace espalier::conversion {

/// Writes tokenizer.json, tokenizer_config.json (with the chat templates) and
/// generation_config.json from GGUF metadata into `folder`; nothing for a file without vocabulary.
/// Throws `LoadError` for a vocabulary that cannot be used.
void write_tokenizer_files(const arrays::GgufMetadata& metadata,
                           const std::filesystem::path& folder);

/// The keys below `tokenizer.` for a checkpoint folder's tokenizer, of `vocabulary` tokens; without
/// one, that there is none. Throws `LoadError` for a kind of tokenizer that has no counterpart in
/// GGUF.
arrays::GgufValues tokenizer_values(const std::filesystem::path& folder, std::int64_t vocabulary);

}  // namespace espalier::conversion
