#pragma once

#include <nlohmann/json.hpp>

#include "arrays/gguf_writer.h"
#include "conversion/layout.h"
#include "conversion/source.h"

namespace espalier::conversion {

/// A model's settings in the other container's terms, with what its tensors need to be renamed.
struct GgufSettings {
  arrays::GgufValues values;  // "llama.block_count", …
  HeadCounts heads;
  std::vector<SourceTensor> tensors;  // beside those of the source: RoPE factors
};

/// GGUF metadata for a folder's config.json. Throws `LoadError` for a setting that GGUF cannot
/// state.
GgufSettings gguf_settings(const Source& source, const Layout& layout);

struct HuggingFaceSettings {
  nlohmann::ordered_json config;
  HeadCounts heads;
};

/// config.json for a GGUF file's metadata, without its dtype. Throws `LoadError` for a setting that
/// config.json cannot state.
HuggingFaceSettings hugging_face_settings(const Source& source, const Layout& layout);

}  // namespace espalier::conversion
