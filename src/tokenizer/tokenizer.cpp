#include "tokenizer/tokenizer.h"

#include <initializer_list>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "tokenizer/json_file.h"
#include "tokenizer/template_files.h"
#include "tokenizer/text_library.h"
#include "tokenizer/tokenizer_json.h"

namespace espalier::tokenizer {
namespace {

void check(espalier_text_status status) {
  if (status != ESPALIER_TEXT_OK) throw std::runtime_error("[tokenizer] " + last_text_error());
}

/// Calls a library function that fills a buffer.
template <typename Function, typename... Arguments>
std::string text_of(Function function, Arguments... arguments) {
  espalier_text_buffer buffer{};
  check(function(arguments..., &buffer));
  return take(buffer);
}

struct FreeStream {
  void operator()(espalier_text_stream* stream) const { espalier_text_stream_free(stream); }
};

class LibraryStream : public StreamDecoder {
 public:
  explicit LibraryStream(espalier_text_stream* stream) : stream_(stream) {}

  std::string push(TokenId id) override {
    return text_of(espalier_text_stream_push, stream_.get(), static_cast<std::uint32_t>(id));
  }
  std::string finish() override { return text_of(espalier_text_stream_finish, stream_.get()); }

 private:
  std::unique_ptr<espalier_text_stream, FreeStream> stream_;
};

struct FreeTokenizer {
  void operator()(espalier_text_tokenizer* tokenizer) const {
    espalier_text_tokenizer_free(tokenizer);
  }
};
using TokenizerHandle = std::unique_ptr<espalier_text_tokenizer, FreeTokenizer>;

class LibraryTokenizer : public Tokenizer {
 public:
  LibraryTokenizer(TokenizerHandle handle, std::optional<TokenId> bos, std::optional<TokenId> eos)
      : handle_(std::move(handle)), bos_(bos), eos_(eos) {}

  std::vector<TokenId> encode(std::string_view text, SpecialTokens special) const override {
    espalier_text_encode_request request{};
    request.special = mode(special);
    return run(request, text);
  }

  std::vector<TokenId> encode_prompt(std::string_view text,
                                     const PromptEncoding& how) const override {
    std::vector<espalier_text_span> literal;
    literal.reserve(how.literal.size());
    for (const TextSpan& span : how.literal) literal.push_back({span.begin, span.end});
    const auto cancelled = [](const void* token) {
      return int{static_cast<const base::CancellationToken*>(token)->cancelled()};
    };
    return run({.special = mode(how.special),
                .literal = literal.data(),
                .literal_count = literal.size(),
                .cancelled = cancelled,
                .context = &how.cancellation},
               text);
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    const auto* data = reinterpret_cast<const std::uint32_t*>(ids.data());
    return text_of(espalier_text_decode, handle_.get(), data, ids.size(), int{skip_special});
  }

  std::unique_ptr<StreamDecoder> stream(bool skip_special) const override {
    auto* stream = espalier_text_stream_new(handle_.get(), int{skip_special});
    if (stream == nullptr) check(ESPALIER_TEXT_FAILED);
    return std::make_unique<LibraryStream>(stream);
  }

  std::string token_bytes(TokenId id) const override {
    return text_of(espalier_text_token_bytes, handle_.get(), static_cast<std::uint32_t>(id));
  }
  std::string token_name(TokenId id) const override {
    return text_of(espalier_text_token_name, handle_.get(), static_cast<std::uint32_t>(id));
  }
  std::optional<TokenId> token_id(std::string_view name) const override {
    return find_id(handle_.get(), name);
  }
  bool is_special(TokenId id) const override {
    return espalier_text_is_special(handle_.get(), static_cast<std::uint32_t>(id)) != 0;
  }
  int vocabulary_size() const override {
    return static_cast<int>(espalier_text_vocabulary_size(handle_.get()));
  }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  const espalier_text_tokenizer* handle() const override { return handle_.get(); }

  static std::optional<TokenId> find_id(const espalier_text_tokenizer* tokenizer,
                                        std::string_view name) {
    const auto id = espalier_text_token_id(tokenizer, as_bytes(name));
    if (id < 0) return std::nullopt;
    return static_cast<TokenId>(id);
  }

 private:
  std::vector<TokenId> run(const espalier_text_encode_request& request,
                           std::string_view text) const {
    espalier_text_ids ids{};
    const auto status = espalier_text_encode(handle_.get(), as_bytes(text), &request, &ids);
    if (status == ESPALIER_TEXT_CANCELLED) {
      throw base::RequestError(499, "cancelled", "The request was cancelled.", "");
    }
    check(status);
    std::vector<TokenId> copy(ids.data, ids.data + ids.size);
    espalier_text_ids_free(ids);
    return copy;
  }

  static espalier_text_special mode(SpecialTokens special) {
    switch (special) {
      case SpecialTokens::recognise:
        return ESPALIER_TEXT_RECOGNISE;
      case SpecialTokens::add:
        return ESPALIER_TEXT_ADD;
      case SpecialTokens::literal:
        return ESPALIER_TEXT_LITERAL;
    }
    return ESPALIER_TEXT_LITERAL;
  }

  TokenizerHandle handle_;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
};

std::vector<espalier_text_bytes> as_bytes_list(const std::vector<std::string>& texts) {
  std::vector<espalier_text_bytes> list;
  list.reserve(texts.size());
  for (const auto& text : texts) list.push_back(as_bytes(text));
  return list;
}

int flag(std::optional<bool> value) { return value ? int{*value} : -1; }

TokenizerHandle build_handle(const GgufVocabulary& vocabulary, const std::string& source) {
  const auto tokens = as_bytes_list(vocabulary.tokens);
  const auto merges = as_bytes_list(vocabulary.merges);
  const espalier_text_gguf_vocabulary raw{
      .model = as_bytes(vocabulary.model),
      .pre = as_bytes(vocabulary.pre),
      .tokens = tokens.data(),
      .token_count = tokens.size(),
      .types = vocabulary.types.data(),
      .type_count = vocabulary.types.size(),
      .scores = vocabulary.scores.data(),
      .score_count = vocabulary.scores.size(),
      .merges = merges.data(),
      .merge_count = merges.size(),
      .precompiled_charsmap = {vocabulary.precompiled_charsmap.data(),
                               vocabulary.precompiled_charsmap.size()},
      .bos = vocabulary.bos.value_or(-1),
      .eos = vocabulary.eos.value_or(-1),
      .unknown = vocabulary.unknown.value_or(-1),
      .separator = vocabulary.separator.value_or(-1),
      .add_bos = flag(vocabulary.add_bos),
      .add_eos = flag(vocabulary.add_eos),
      .add_space_prefix = flag(vocabulary.add_space_prefix),
      .remove_extra_whitespaces = flag(vocabulary.remove_extra_whitespaces),
  };
  TokenizerHandle handle(espalier_text_tokenizer_from_gguf(&raw));
  if (!handle) {
    throw base::LoadError(source + " has a vocabulary that cannot be used: " + last_text_error() +
                          ".");
  }
  return handle;
}

/// The file that holds the tokenizer of a checkpoint without a tokenizer.json.
std::filesystem::path find_model_file(const std::filesystem::path& folder) {
  for (const char* name : {"tekken.json", "tokenizer.model", "tiktoken.model"}) {
    if (std::filesystem::exists(folder / name)) return folder / name;
  }
  std::filesystem::path found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_model = name.starts_with("tokenizer.model.") || name.ends_with(".tiktoken");
    if (is_model && (found.empty() || name > found.filename().string())) found = entry.path();
  }
  return found;
}

TokenizerHandle open_tokenizer(const std::filesystem::path& folder) {
  auto path = folder / "tokenizer.json";
  TokenizerHandle handle;
  if (std::filesystem::exists(path)) {
    const std::string json = read_text_file(path);
    handle.reset(espalier_text_tokenizer_from_json(as_bytes(json)));
  } else {
    if (std::filesystem::is_directory(folder)) path = find_model_file(folder);
    if (!std::filesystem::exists(path)) {
      throw base::LoadError(
          "There is no tokenizer.json, tekken.json, tokenizer.model or *.tiktoken in " +
          folder.string() + ".");
    }
    const std::string content = read_text_file(path);
    const auto config = folder / "tokenizer_config.json";
    const std::string config_text = std::filesystem::exists(config) ? read_text_file(config) : "";
    const std::string name = path.filename().string();
    handle.reset(espalier_text_tokenizer_from_model_file(as_bytes(name), as_bytes(content),
                                                         as_bytes(config_text)));
  }
  if (!handle) {
    throw base::LoadError(path.string() + " is not a tokenizer: " + last_text_error() + ".");
  }
  return handle;
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  TokenizerHandle handle = open_tokenizer(folder);
  const auto special = read_template_files(folder).special_tokens;
  const auto named = [&](const char* name,
                         std::initializer_list<const char*> usual) -> std::optional<TokenId> {
    const auto found = special.find(name);
    if (found != special.end()) return LibraryTokenizer::find_id(handle.get(), found->second);
    if (!special.empty()) return std::nullopt;
    for (const char* token : usual) {
      const auto id = LibraryTokenizer::find_id(handle.get(), token);
      if (id) return id;
    }
    return std::nullopt;
  };
  const auto bos = named("bos_token", {"<s>", "<bos>", "<|begin_of_text|>"});
  const auto eos = named("eos_token", {"</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"});
  return std::make_shared<LibraryTokenizer>(std::move(handle), bos, eos);
}

std::shared_ptr<const Tokenizer> build_tokenizer(const GgufVocabulary& vocabulary,
                                                 const std::string& source) {
  return std::make_shared<LibraryTokenizer>(build_handle(vocabulary, source), vocabulary.bos,
                                            vocabulary.eos);
}

std::string tokenizer_json(const GgufVocabulary& vocabulary, const std::string& source) {
  const TokenizerHandle handle = build_handle(vocabulary, source);
  return text_of(espalier_text_tokenizer_json, handle.get());
}

}  // namespace espalier::tokenizer
