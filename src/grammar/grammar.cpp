#include "grammar/grammar.h"

#include <future>
#include <list>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "tokenizer/text_library.h"

namespace espalier::grammar {
namespace {

using tokenizer::as_bytes;
using tokenizer::last_text_error;
using tokenizer::TokenId;

constexpr std::size_t cached_constraints = 64;

void check(espalier_text_status status) {
  if (status != ESPALIER_TEXT_OK) throw std::runtime_error("[grammar] " + last_text_error());
}

struct FreeMatcher {
  void operator()(espalier_text_matcher* matcher) const { espalier_text_matcher_free(matcher); }
};

class LibraryMatcher : public Matcher {
 public:
  LibraryMatcher(espalier_text_matcher* matcher, int width) : matcher_(matcher), width_(width) {}

  int mask_words() const override { return (width_ + 31) / 32; }
  void mask(std::span<std::uint32_t> words) override {
    check(espalier_text_matcher_mask(matcher_.get(), words.data(), words.size()));
  }
  void limit(std::size_t tokens) override {
    check(espalier_text_matcher_limit(matcher_.get(), tokens));
  }
  void commit(TokenId id) override {
    check(espalier_text_matcher_commit(matcher_.get(), static_cast<std::uint32_t>(id)));
  }
  void rollback(int count) override {
    check(espalier_text_matcher_rollback(matcher_.get(), static_cast<std::size_t>(count)));
  }
  bool stopped() const override { return espalier_text_matcher_stopped(matcher_.get()) != 0; }
  bool accepting() override {
    int accepting = 0;
    check(espalier_text_matcher_accepting(matcher_.get(), &accepting));
    return accepting != 0;
  }

 private:
  std::unique_ptr<espalier_text_matcher, FreeMatcher> matcher_;
  int width_;
};

struct FreeConstraint {
  void operator()(espalier_text_constraint* constraint) const {
    espalier_text_constraint_free(constraint);
  }
};

class LibraryConstraint : public Constraint {
 public:
  LibraryConstraint(espalier_text_constraint* constraint, int width)
      : constraint_(constraint), width_(width) {}

  std::unique_ptr<Matcher> start() const override {
    auto* matcher = espalier_text_matcher_new(constraint_.get());
    if (matcher == nullptr) check(ESPALIER_TEXT_FAILED);
    return std::make_unique<LibraryMatcher>(matcher, width_);
  }

 private:
  std::unique_ptr<espalier_text_constraint, FreeConstraint> constraint_;
  int width_;
};

struct FreeVocabulary {
  void operator()(espalier_text_grammar_vocabulary* vocabulary) const {
    espalier_text_grammar_vocabulary_free(vocabulary);
  }
};
using Vocabulary = std::unique_ptr<espalier_text_grammar_vocabulary, FreeVocabulary>;

Vocabulary build_vocabulary(const tokenizer::Tokenizer& tokenizer, int width,
                            const std::vector<TokenId>& end_tokens) {
  if (tokenizer.handle() == nullptr) {
    throw std::logic_error("[make_compiler] expected a tokenizer of the text library");
  }
  Vocabulary vocabulary(espalier_text_grammar_vocabulary_new(
      tokenizer.handle(), static_cast<std::uint32_t>(width),
      reinterpret_cast<const std::uint32_t*>(end_tokens.data()), end_tokens.size()));
  if (!vocabulary) check(ESPALIER_TEXT_FAILED);
  return vocabulary;
}

std::string_view subject(Notation notation) {
  switch (notation) {
    case Notation::json_schema:
      return "JSON schema";
    case Notation::regex:
      return "regular expression";
    case Notation::lark:
    case Notation::gbnf:
      return "grammar";
    case Notation::choice:
      return "list of choices";
  }
  return "grammar";
}

/// Tells grammars apart: lengths go before texts, so that no two run together.
std::string cache_key(const Grammar& grammar) {
  std::string key = std::to_string(static_cast<int>(grammar.notation));
  const auto add = [&key](const std::string& text) {
    key += ' ' + std::to_string(text.size()) + ' ' + text;
  };
  add(grammar.text);
  add(grammar.text_close);
  if (grammar.reasoning) {
    add(grammar.reasoning->open);
    add(grammar.reasoning->close);
  }
  return key;
}

class LibraryCompiler : public Compiler {
 public:
  LibraryCompiler(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int width,
                  std::vector<TokenId> end_tokens)
      : tokenizer_(std::move(tokenizer)), width_(width), end_tokens_(std::move(end_tokens)) {}

  std::shared_ptr<const Constraint> compile(const Grammar& grammar) override {
    const std::string key = cache_key(grammar);
    if (auto found = find(key)) return found;
    auto constraint = compile_new(grammar);
    const std::lock_guard lock(mutex_);
    cache_.emplace_front(key, constraint);
    if (cache_.size() > cached_constraints) cache_.pop_back();
    return constraint;
  }

  std::string reference(std::string_view markup) override {
    espalier_text_buffer buffer{};
    check(espalier_text_grammar_reference(start().get().get(), as_bytes(markup), &buffer));
    return tokenizer::take(buffer);
  }

 private:
  std::shared_ptr<const Constraint> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    for (auto entry = cache_.begin(); entry != cache_.end(); ++entry) {
      if (entry->first == key) {
        cache_.splice(cache_.begin(), cache_, entry);
        return cache_.front().second;
      }
    }
    return nullptr;
  }

  std::shared_ptr<const Constraint> compile_new(const Grammar& grammar) {
    const Reasoning reasoning = grammar.reasoning.value_or(Reasoning());
    const espalier_text_grammar raw{
        .source = static_cast<int>(grammar.notation),
        .text = as_bytes(grammar.text),
        .follows_reasoning = int{grammar.reasoning.has_value()},
        .reasoning_open = as_bytes(reasoning.open),
        .reasoning_close = as_bytes(reasoning.close),
        .text_close = as_bytes(grammar.text_close),
    };
    espalier_text_constraint* constraint = nullptr;
    const auto status = espalier_text_constraint_compile(start().get().get(), &raw, &constraint);
    if (status == ESPALIER_TEXT_REFUSED) {
      throw base::RequestError(400, "invalid_grammar",
                               "The " + std::string(subject(grammar.notation)) +
                                   " cannot be used: " + last_text_error() + ".");
    }
    check(status);
    return std::make_shared<LibraryConstraint>(constraint, width_);
  }

  /// The vocabulary, being built at the latest from now on.
  std::shared_future<Vocabulary> start() {
    const std::lock_guard lock(mutex_);
    if (!vocabulary_.valid()) {
      vocabulary_ = std::async(std::launch::async, [this] {
                      return build_vocabulary(*tokenizer_, width_, end_tokens_);
                    }).share();
    }
    return vocabulary_;
  }

  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const int width_;
  const std::vector<TokenId> end_tokens_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const Constraint>>> cache_;  // latest first
  std::shared_future<Vocabulary> vocabulary_;  // last: its thread uses the others
};

}  // namespace

Notation grammar_notation(std::string_view text) {
  return text.find("::=") == std::string_view::npos ? Notation::lark : Notation::gbnf;
}

std::shared_ptr<Compiler> make_compiler(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                        int width, std::vector<TokenId> end_tokens) {
  return std::make_shared<LibraryCompiler>(std::move(tokenizer), width, std::move(end_tokens));
}

}  // namespace espalier::grammar
