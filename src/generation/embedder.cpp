#include "generation/embedder.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "generation/load_options.h"
#include "models/sequence_model.h"
#include "tokenizer/tokenizer.h"

namespace espalier::generation {
namespace {

using models::SequenceInput;
using tokenizer::SpecialTokens;
using tokenizer::TokenId;

/// A text's ids with what the tokenizer puts around it.
struct Encoded {
  std::vector<TokenId> ids;
  std::size_t prefix = 0;  // special tokens before the text
  std::size_t suffix = 0;  // ... and behind it
};

Encoded encode(const tokenizer::Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> plain = tokenizer.encode(text, SpecialTokens::recognise);
  Encoded encoded{.ids = tokenizer.encode(text, SpecialTokens::add)};
  const auto start =
      std::search(encoded.ids.begin(), encoded.ids.end(), plain.begin(), plain.end());
  if (start == encoded.ids.end() && !plain.empty()) {
    return encoded;
  }
  // Of an empty text nobody can say where it lies; the first token is taken to come before it.
  encoded.prefix = plain.empty() ? std::min<std::size_t>(1, encoded.ids.size())
                                 : static_cast<std::size_t>(start - encoded.ids.begin());
  encoded.suffix = encoded.ids.size() - encoded.prefix - plain.size();
  return encoded;
}

/// Drops the text's end so that at most `most` ids are left, what stands behind it included.
void cut(Encoded& encoded, std::size_t most) {
  if (encoded.ids.size() <= most) {
    return;
  }
  const std::size_t kept = most - std::min(most, encoded.suffix);
  encoded.ids.erase(encoded.ids.begin() + static_cast<std::ptrdiff_t>(kept),
                    encoded.ids.end() - static_cast<std::ptrdiff_t>(encoded.suffix));
}

class ModelEmbedder : public Embedder {
 public:
  ModelEmbedder(const std::filesystem::path& path, const EngineOptions& options)
      : tokenizer_(tokenizer::load_tokenizer(path)),
        model_(models::load_sequence_model(path, load_options(options))) {
    const models::Descriptor& descriptor = model_->descriptor();
    int most = std::min(descriptor.context, options.context.value_or(descriptor.context));
    if (model_->embedding() && model_->embedding()->most_tokens) {
      most = std::min(most, *model_->embedding()->most_tokens);
    }
    info_ = {.model = {.family = descriptor.family,
                       .vocabulary = descriptor.vocabulary,
                       .context = most,
                       .trained_context = descriptor.context,
                       .weight_bytes = model_->weight_bytes(),
                       .packed_bytes = model_->packed_bytes(),
                       .kv_bytes_per_token = 0,
                       .end_tokens = {}},
             .dimensions = model_->dimensions(),
             .most_tokens = most,
             .classifies = !model_->embedding().has_value()};
  }

  const EmbedderInfo& info() const override { return info_; }

  EmbeddingResult embed(const std::vector<EmbeddingInput>& inputs,
                        const std::string& prompt) override {
    const std::string before = prompt_text(prompt);
    std::vector<SequenceInput> sequences;
    for (const EmbeddingInput& input : inputs) {
      if (const auto* text = std::get_if<std::string>(&input)) {
        Encoded encoded = encode(*tokenizer_, before + *text);
        cut(encoded, static_cast<std::size_t>(info_.most_tokens));
        sequences.push_back({.tokens = std::move(encoded.ids)});
      } else {
        sequences.push_back({.tokens = std::get<std::vector<TokenId>>(input)});
      }
      check(sequences.back().tokens);
    }
    return run(sequences);
  }

  EmbeddingResult score(const std::string& query,
                        const std::vector<std::string>& documents) override {
    if (!info_.classifies) {
      throw base::RequestError(400, "unsupported_model",
                               "This model gives embeddings; it scores no documents.", "model");
    }
    std::vector<SequenceInput> sequences;
    for (const std::string& document : documents) {
      sequences.push_back(pair(query, document));
      check(sequences.back().tokens);
    }
    return run(sequences);
  }

 private:
  std::string prompt_text(const std::string& name) const {
    const auto& embedding = model_->embedding();
    const std::string chosen = name.empty() && embedding ? embedding->default_prompt : name;
    if (chosen.empty()) {
      return {};
    }
    if (!embedding || !embedding->prompts.contains(chosen)) {
      throw base::RequestError(400, "invalid_value",
                               "The model has no prompt named '" + chosen + "'.", "prompt");
    }
    return embedding->prompts.at(chosen);
  }

  /// Query and document as one sequence: the first as it is, the second with its leading special
  /// token dropped (BERT), or replaced by the closing one (RoBERTa: `</s></s>` between the two).
  /// The document is cut when both are too long together.
  SequenceInput pair(const std::string& query, const std::string& document) const {
    Encoded first = encode(*tokenizer_, query);
    Encoded second = encode(*tokenizer_, document);
    const std::string& family = info_.model.family;
    const bool doubled = family == "roberta" || family == "xlm-roberta";
    if (doubled && second.prefix > 0 && second.suffix > 0) {
      second.ids.front() = second.ids.back();
    } else {
      second.ids.erase(second.ids.begin(),
                       second.ids.begin() + static_cast<std::ptrdiff_t>(second.prefix));
    }
    const auto most = static_cast<std::size_t>(info_.most_tokens);
    cut(first, most - std::min(most, second.suffix + 1));
    cut(second, most - first.ids.size());
    SequenceInput input{.tokens = std::move(first.ids)};
    if (!doubled) {
      input.second_segment = static_cast<int>(input.tokens.size());
    }
    input.tokens.insert(input.tokens.end(), second.ids.begin(), second.ids.end());
    return input;
  }

  void check(const std::vector<TokenId>& tokens) const {
    if (tokens.empty()) {
      throw base::RequestError(400, "invalid_value", "An input has no tokens.", "input");
    }
    if (tokens.size() > static_cast<std::size_t>(info_.most_tokens)) {
      throw base::RequestError(400, "context_length_exceeded",
                               "An input has " + std::to_string(tokens.size()) +
                                   " tokens, but the model takes at most " +
                                   std::to_string(info_.most_tokens) + ".",
                               "input");
    }
    for (const TokenId id : tokens) {
      if (id < 0 || id >= info_.model.vocabulary) {
        throw base::RequestError(400, "invalid_value",
                                 "An input has the token id " + std::to_string(id) +
                                     ", but the model's ids are below " +
                                     std::to_string(info_.model.vocabulary) + ".",
                                 "input");
      }
    }
  }

  EmbeddingResult run(const std::vector<SequenceInput>& sequences) {
    EmbeddingResult result;
    for (const SequenceInput& sequence : sequences) {
      result.tokens += sequence.tokens.size();
    }
    const std::lock_guard lock(mutex_);
    const mlx::core::array vectors = model_->run(sequences);
    const float* next = vectors.data<float>();
    for (std::size_t i = 0; i < sequences.size(); ++i, next += info_.dimensions) {
      result.vectors.emplace_back(next, next + info_.dimensions);
    }
    return result;
  }

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<models::SequenceModel> model_;
  EmbedderInfo info_;
  std::mutex mutex_;  // while the model computes
};

class RefusingEngine : public Engine {
 public:
  explicit RefusingEngine(ModelInfo info) : info_(std::move(info)) {}

  const ModelInfo& info() const override { return info_; }
  void submit(GenerationRequest, TokenSink) override {
    throw base::RequestError(400, "unsupported_model",
                             "This model gives embeddings or scores; it generates no text.",
                             "model");
  }
  EngineStats stats() const override { return {}; }
  bool drain(double) override { return true; }

 private:
  ModelInfo info_;
};

}  // namespace

bool Embedder::holds(const std::filesystem::path& path) { return models::is_sequence_model(path); }

std::unique_ptr<Embedder> Embedder::load(const std::filesystem::path& path,
                                         const EngineOptions& options) {
  if (options.threads) {
    base::set_compute_threads(*options.threads);
  }
  return std::make_unique<ModelEmbedder>(path, options);
}

std::unique_ptr<Engine> refuse_generation(const ModelInfo& info) {
  return std::make_unique<RefusingEngine>(info);
}

}  // namespace espalier::generation
