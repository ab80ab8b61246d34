#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancellation.h"

/// The text library's tokenizer.
struct espalier_text_tokenizer;

namespace espalier::tokenizer {

using TokenId = std::int32_t;

/// A vocabulary as GGUF metadata holds it (`tokenizer.ggml.*`), in plain structs.
struct GgufVocabulary {
  std::string model;  // gpt2, llama, bert, t5
  std::string pre;
  std::vector<std::string> tokens;
  std::vector<std::int32_t>
      types;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<float> scores;
  std::vector<std::string> merges;
  std::vector<std::uint8_t> precompiled_charsmap;
  std::optional<TokenId> bos, eos, unknown, padding, separator, mask;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
};

enum class SpecialTokens {
  recognise,  // special tokens written in the text become their ids, nothing is added
  add,        // the same, plus what the post-processor adds (BOS, EOS)
  literal,    // all text is plain text
};

/// Bytes `[begin, end)` of a text.
struct TextSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// What a prompt's encoding is given beside the text. Refers to the spans.
struct PromptEncoding {
  SpecialTokens special = SpecialTokens::recognise;
  std::span<const TextSpan> literal = {};  // ascending; names of special tokens there are text
  base::CancellationToken cancellation = {};
};

/// Turns ids into text piece by piece; never emits half a character. Owned by one thread.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;
  /// The text that `id` completes, often all of it, sometimes nothing.
  virtual std::string push(TokenId id) = 0;
  /// What is still held back at the end (replacement characters for an unfinished one).
  virtual std::string finish() = 0;
};

/// A tokenizer; immutable and safe to use from any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<TokenId> encode(std::string_view text, SpecialTokens special) const = 0;
  /// As `encode`, but names of special tokens are not recognised in the literal spans. Asks between
  /// words whether it is cancelled, and throws `RequestError` 499 when it is.
  virtual std::vector<TokenId> encode_prompt(std::string_view text,
                                             const PromptEncoding& how) const = 0;
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;
  virtual std::unique_ptr<StreamDecoder> stream(bool skip_special) const = 0;
  /// The bytes a token stands for (a special token's are its name); empty for an id without one.
  virtual std::string token_bytes(TokenId id) const = 0;
  /// The token's entry in the vocabulary, as Hugging Face shows it.
  virtual std::string token_name(TokenId id) const = 0;
  virtual std::optional<TokenId> token_id(std::string_view name) const = 0;
  virtual bool is_special(TokenId id) const = 0;
  virtual int vocabulary_size() const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;

  /// The text library's object, for what else it offers; null where there is none.
  virtual const espalier_text_tokenizer* handle() const { return nullptr; }
};

/// Reads a checkpoint folder's `tokenizer.json`; where there is none its `tekken.json`,
/// `tokenizer.model` (SentencePiece, or ranks as Llama 3 ships them) or other file of tiktoken
/// ranks with what `tokenizer_config.json` adds. Throws `LoadError`.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& folder);

/// Builds a tokenizer from a GGUF vocabulary; `source` is the path to show in messages.
std::shared_ptr<const Tokenizer> build_tokenizer(const GgufVocabulary& vocabulary,
                                                 const std::string& source);

}  // namespace espalier::tokenizer
