#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace espalier::grammar {

/// What a grammar is written in.
enum class Notation {
  json_schema,  // the text is JSON that fulfils a JSON schema
  regex,        // a regular expression (Rust's syntax) for the whole text
  lark,         // llguidance's dialect of Lark: `<|name|>` or `<[id]>` is a special token,
                // `%json {…}` a JSON schema
  gbnf,         // llama.cpp's notation
  choice,       // a JSON array of strings, one of which the text is
};

/// Reasoning that goes before a constrained text and is itself free until it is closed.
struct Reasoning {
  std::string open = {};  // empty: the prompt has opened it
  std::string close = {};
};

/// A grammar's source.
struct Grammar {
  Notation notation = Notation::json_schema;
  std::string text = {};
  std::optional<Reasoning> reasoning = {};
  /// What ends free text without quotes in the grammar, for texts with a limit; empty: none.
  std::string text_close = {};
};

/// The schema of `response_format: json_object`.
inline constexpr std::string_view any_object_schema = R"({"type":"object"})";

/// How far one text has come in its grammar. Used from one thread at a time.
class Matcher {
 public:
  virtual ~Matcher() = default;

  /// Words of a mask.
  virtual int mask_words() const = 0;
  /// Bit i of `words` says whether token i may come next; end tokens may where the text may end,
  /// and nothing else may where it must. Throws `std::runtime_error` when the grammar turns out to
  /// be too complex to compute the mask, or allows nothing.
  virtual void mask(std::span<std::uint32_t> words) = 0;
  /// At most `tokens` more may come: from now on masks see to it that the text is complete by then,
  /// if it can be. They leave out what the text can do without when the limit comes near, and at
  /// last allow the shortest end alone.
  virtual void limit(std::size_t tokens) = 0;
  /// Goes on by a token that the mask allows. Throws `std::runtime_error`.
  virtual void commit(tokenizer::TokenId id) = 0;
  /// Takes the last `count` tokens back. Throws `std::runtime_error`.
  virtual void rollback(int count) = 0;
  /// The text is complete: only an end token may follow.
  virtual bool stopped() const = 0;
  /// The text may end here.
  virtual bool accepting() = 0;
};

/// A compiled grammar. Immutable; safe to use from any thread.
class Constraint {
 public:
  virtual ~Constraint() = default;
  /// The state of a new text. Texts share nothing: what one does never changes another.
  virtual std::unique_ptr<Matcher> start() const = 0;
};

/// Compiles grammars for one model. All calls are thread-safe.
class Compiler {
 public:
  virtual ~Compiler() = default;

  /// The first call of any kind builds the table of the vocabulary and waits for it: half a second
  /// for 150,000 tokens. Compiling then takes some milliseconds, more for a large schema, and
  /// nothing for a grammar that was compiled lately. Throws `RequestError` 400 saying what the
  /// grammar has that is wrong or not supported, for a schema the keyword and its place.
  virtual std::shared_ptr<const Constraint> compile(const Grammar& grammar) = 0;

  /// How a Lark grammar refers to a piece of the model's markup: `<[id]>` when it is one special
  /// token, else a quoted string.
  virtual std::string reference(std::string_view markup) = 0;
};

/// What a grammar's text is written in: GBNF when it has `::=`, else Lark.
Notation grammar_notation(std::string_view text);

/// A compiler for models with this tokenizer, logits of `width` tokens and these end tokens.
std::shared_ptr<Compiler> make_compiler(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                        int width, std::vector<tokenizer::TokenId> end_tokens);

}  // namespace espalier::grammar
