#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "server/protocol/chat_prompt.h"

namespace espalier::server::protocol {

/// Keeps names of special tokens that users write in messages from becoming those tokens: each is
/// replaced by a mark before the template runs and found again in its output. A mark starts with a
/// random number, so no text can forge one. Holds the names of one rendering; not thread-safe.
class SpecialMarks {
 public:
  explicit SpecialMarks(const std::unordered_set<std::string>& names);

  /// Replaces the names in every string and key of `value`.
  void mark(Json& value);
  /// Cuts a template's output at the marks.
  std::vector<PromptPiece> split(std::string_view rendered) const;
  /// The text with the names in place of their marks.
  std::string restore(std::string text) const;

 private:
  void mark_text(std::string& text);

  const std::unordered_set<std::string>& names_;
  std::set<std::size_t, std::greater<>> lengths_;
  std::string begin_;
  std::vector<std::string> marked_;
};

/// The special tokens that one of the texts holds.
std::unordered_set<tokenizer::TokenId> special_tokens_in(const tokenizer::Tokenizer& tokenizer,
                                                         const std::vector<std::string>& texts);

/// The names of a tokenizer's special tokens.
std::unordered_set<std::string> special_names(const tokenizer::Tokenizer& tokenizer);

}  // namespace espalier::server::protocol
