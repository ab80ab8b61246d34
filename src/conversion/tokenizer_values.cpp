#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "conversion/tokenizer_files.h"
#include "tokenizer/json_file.h"
#include "tokenizer/template_files.h"
#include "tokenizer/tokenizer.h"

namespace espalier::conversion {
namespace {

using base::LoadError;
using nlohmann::json;
using tokenizer::TokenId;

enum TokenType : std::int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

/// Names of pre-tokenizers in GGUF, those that behave alike by one of them.
constexpr std::array<std::string_view, 16> pre_tokenizers = {
    "llama-bpe",   "qwen2",  "smollm",    "gpt-2", "gpt-4o",       "tekken",
    "command-r",   "olmo",   "falcon",    "mpt",   "deepseek-llm", "deepseek-coder",
    "deepseek-v3", "qwen35", "starcoder", "bloom",
};

/// Cuts that pre-tokenizers are known to make differently.
constexpr std::string_view probe =
    "Hello, world! I'll it'S 3 33 333 4444 1234567  x\t\ty \n\n  z\r\n(a_b) <p>don't</p> «é» "
    "Ünïcödé naïve ﬁ Äpfel 你好，世界 こんにちは한국어 नमस्ते ไทย العربية 🚀 "
    "👩‍👩‍👧 "
    "½ "
    "² "
    "३ "
    "CamelCaseWORD snake_case  ==>!!!...   trailing   \n \n\n\t tab x=1;y+=2 /usr/bin #!/bin/sh";

/// What tokenizer.json says about a byte-pair vocabulary.
class JsonVocabulary {
 public:
  explicit JsonVocabulary(std::filesystem::path path)
      : path_(std::move(path)), file_(tokenizer::read_json_object(path_)) {
    const json& model = object(file_, "model");
    const std::string type = model.value("type", "BPE");
    if (type != "BPE") fail("a tokenizer of type " + type + " cannot be written into GGUF");
    const std::string text = file_.dump();
    byte_level_ = text.find("\"ByteLevel\"") != std::string::npos;
    if (!byte_level_ && !model.value("byte_fallback", false)) {
      fail("a tokenizer without bytes for unknown characters cannot be written into GGUF");
    }
  }

  bool byte_level() const { return byte_level_; }

  /// Tokens and their types; ids that no token has become unused.
  void read_tokens(std::int64_t count, tokenizer::GgufVocabulary& vocabulary) const {
    for (std::int64_t id = 0; id < count; ++id) {
      vocabulary.tokens.push_back("[PAD" + std::to_string(id) + "]");
    }
    vocabulary.types.assign(static_cast<std::size_t>(count), unused);
    for (const auto& [token, id] : object(object(file_, "model"), "vocab").items()) {
      const bool is_byte = token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
      set(vocabulary, id, token, !byte_level_ && is_byte ? byte : normal);
    }
    if (!file_.contains("added_tokens")) return;
    for (const json& added : file_["added_tokens"]) {
      const bool special = added.value("special", false);
      set(vocabulary, added.value("id", json()), added.value("content", ""),
          special ? control : user_defined);
    }
  }

  /// "first second", in the order in which they apply.
  std::vector<std::string> merges() const {
    std::vector<std::string> merges;
    for (const json& merge : object(file_, "model").value("merges", json::array())) {
      if (merge.is_string()) {
        merges.push_back(merge.get<std::string>());
      } else if (merge.is_array() && merge.size() == 2) {
        merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
      } else {
        fail("a merge is neither text nor a pair");
      }
    }
    return merges;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw LoadError(path_.string() + ": " + what);
  }

  const json& object(const json& parent, const char* key) const {
    const auto found = parent.find(key);
    if (found == parent.end() || !found->is_object()) fail(std::string(key) + " is no object");
    return *found;
  }

  void set(tokenizer::GgufVocabulary& vocabulary, const json& id, const std::string& token,
           TokenType type) const {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0) {
      fail("the id of token " + token + " is no number");
    }
    const auto index = id.get<std::size_t>();
    if (index >= vocabulary.tokens.size()) {
      fail("token " + token + " has id " + std::to_string(index) + ", but the embedding has only " +
           std::to_string(vocabulary.tokens.size()) + " rows");
    }
    vocabulary.tokens[index] = token;
    vocabulary.types[index] = type;
  }

  std::filesystem::path path_;
  json file_;
  bool byte_level_ = false;
};

/// SentencePiece merges the pair that gives the best-scored token: scores are the order of merges.
std::vector<float> scores(const tokenizer::GgufVocabulary& vocabulary,
                          const std::vector<std::string>& merges) {
  std::unordered_map<std::string, std::size_t> ranks;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    std::string token = merges[i];
    token.erase(token.find(' '), 1);
    ranks.emplace(std::move(token), i);
  }
  std::vector<float> scores;
  scores.reserve(vocabulary.tokens.size());
  for (const std::string& token : vocabulary.tokens) {
    const auto found = ranks.find(token);
    scores.push_back(-static_cast<float>(found == ranks.end() ? ranks.size() : found->second));
  }
  return scores;
}

/// The name under which a GGUF reader cuts text as this tokenizer does.
std::string find_pre_tokenizer(const tokenizer::Tokenizer& wanted,
                               tokenizer::GgufVocabulary vocabulary, const std::string& path) {
  const auto ids = wanted.encode(probe, tokenizer::SpecialTokens::recognise);
  for (const std::string_view name : pre_tokenizers) {
    vocabulary.pre = name;
    const auto candidate = tokenizer::build_tokenizer(vocabulary, path);
    if (candidate->encode(probe, tokenizer::SpecialTokens::recognise) == ids) {
      return std::string(name);
    }
  }
  throw LoadError(path + ": GGUF has no name for the way in which this tokenizer cuts text");
}

struct SpecialIds {
  std::optional<TokenId> bos, eos, unknown, padding;
};

SpecialIds special_ids(const tokenizer::Tokenizer& tokenizer,
                       const std::map<std::string, std::string>& names) {
  const auto id = [&](const char* name) -> std::optional<TokenId> {
    const auto found = names.find(name);
    return found == names.end() ? std::nullopt : tokenizer.token_id(found->second);
  };
  return {id("bos_token"), id("eos_token"), id("unk_token"), id("pad_token")};
}

class ValueList {
 public:
  template <typename T>
  void add(const char* name, T value) {
    values_.emplace_back(std::string("tokenizer.ggml.") + name, std::move(value));
  }
  void add_id(const char* name, std::optional<TokenId> id) {
    if (id) add(name, static_cast<std::uint64_t>(*id));
  }
  void add_templates(const std::map<std::string, std::string>& variants) {
    for (const auto& [name, source] : variants) {
      values_.emplace_back(
          name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + name,
          source);
    }
  }
  arrays::GgufValues take() { return std::move(values_); }

 private:
  arrays::GgufValues values_;
};

template <typename Wide, typename T>
std::vector<Wide> widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

arrays::GgufValues tokenizer_values(const std::filesystem::path& folder, std::int64_t vocabulary) {
  const auto path = folder / "tokenizer.json";
  if (!std::filesystem::exists(path)) return {{"tokenizer.ggml.model", std::string("none")}};
  const auto own = tokenizer::load_tokenizer(folder);
  const auto files = tokenizer::read_template_files(folder);
  const JsonVocabulary json(path);
  const SpecialIds ids = special_ids(*own, files.special_tokens);

  tokenizer::GgufVocabulary gguf;
  gguf.model = json.byte_level() ? "gpt2" : "llama";
  json.read_tokens(vocabulary, gguf);
  const std::vector<std::string> merges = json.merges();

  ValueList list;
  list.add("model", gguf.model);
  if (json.byte_level()) {
    gguf.merges = merges;
    list.add("pre", find_pre_tokenizer(*own, gguf, path.string()));
    list.add("merges", merges);
  } else {
    if (ids.unknown) gguf.types[static_cast<std::size_t>(*ids.unknown)] = unknown;
    list.add("pre", std::string("default"));
    list.add("scores", widened<double>(scores(gguf, merges)));
    const auto letter = own->encode("a", tokenizer::SpecialTokens::recognise);
    list.add("add_space_prefix",
             !letter.empty() && own->token_name(letter.front()).starts_with("\u2581"));
  }
  list.add("tokens", gguf.tokens);
  list.add("token_type", widened<std::int64_t>(gguf.types));
  list.add_id("bos_token_id", ids.bos);
  list.add_id("eos_token_id", ids.eos);
  list.add_id("unknown_token_id", ids.unknown);
  list.add_id("padding_token_id", ids.padding);
  const auto added = own->encode("", tokenizer::SpecialTokens::add);
  list.add("add_bos_token", ids.bos && !added.empty() && added.front() == *ids.bos);
  list.add("add_eos_token", ids.eos && !added.empty() && added.back() == *ids.eos);
  list.add_templates(files.variants);
  return list.take();
}

}  // namespace espalier::conversion
