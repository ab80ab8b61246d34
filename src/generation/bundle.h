#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generation/request.h"
#include "tokenizer/tokenizer.h"

namespace espalier::generation {

/// What a checkpoint brings beside its weights: tokenizer, template sources, sampling defaults.
/// Immutable once read; reading it touches no weights.
struct TextBundle {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::map<std::string, std::string> template_variants;  // name → source; "default"
  std::map<std::string, std::string> special_tokens;     // bos_token, eos_token, …
  SamplingParameters sampling_defaults;  // generation_config.json, else temperature 1
  std::vector<tokenizer::TokenId>
      end_tokens;  // eos of generation_config, tokenizer and GGUF (eos, eot, eom)
};

/// Reads it from a checkpoint folder or a `.gguf` file (also one without tensors). Throws
/// `LoadError`.
TextBundle load_text_bundle(const std::filesystem::path& path);

}  // namespace espalier::generation
