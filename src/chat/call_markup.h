#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/dialect.h"

namespace espalier::chat {

/// How a Lark grammar writes a piece of the model's markup: a special token or a quoted string.
using MarkupReference = std::function<std::string(std::string_view)>;

/// A text as a string of a Lark grammar; nothing for no text.
std::string lark_string(std::string_view literal);

/// Writes the texts of a form of calls for a Lark grammar.
class MarkupWriter {
 public:
  MarkupWriter(const Dialect& dialect, const MarkupReference& reference);

  /// Markup by reference, the rest quoted; `number_byte` and `id_byte` as the rules they stand for.
  std::string text(std::string_view source) const;
  /// The plain text up to the first special token, and what follows as `text` gives it.
  std::pair<std::string_view, std::string> split(std::string_view source) const;

 private:
  /// The markup that a text begins with; empty when it is none.
  std::string_view markup_at(std::string_view source) const;

  const MarkupReference& reference_;
  std::vector<std::string> markup_;
};

}  // namespace espalier::chat
