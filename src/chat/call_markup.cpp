#include "chat/call_markup.h"

#include <algorithm>

#include "chat/call_forms.h"
#include "chat/literal.h"

namespace espalier::chat {

std::string lark_string(std::string_view literal) {
  return literal.empty() ? std::string() : json_string(literal) + " ";
}

MarkupWriter::MarkupWriter(const Dialect& dialect, const MarkupReference& reference)
    : reference_(reference), markup_(markup_of(dialect, dialect.reasoning)) {
  // The longest first: one may begin another.
  std::sort(markup_.begin(), markup_.end(),
            [](const auto& left, const auto& right) { return left.size() > right.size(); });
}

std::string_view MarkupWriter::markup_at(std::string_view source) const {
  const auto found = std::find_if(markup_.begin(), markup_.end(),
                                  [source](const auto& mark) { return source.starts_with(mark); });
  return found == markup_.end() ? std::string_view() : *found;
}

std::string MarkupWriter::text(std::string_view source) const {
  std::string result;
  std::string literal;
  while (!source.empty()) {
    const std::string_view mark = markup_at(source);
    const char byte = source.front();
    if (mark.empty() && byte != number_byte && byte != id_byte) {
      literal += byte;
      source.remove_prefix(1);
      continue;
    }
    result += lark_string(std::exchange(literal, {}));
    if (!mark.empty()) {
      result += reference_(mark) + " ";
      source.remove_prefix(mark.size());
    } else {
      result += byte == number_byte ? "NUMBER " : "ID ";
      source.remove_prefix(1);
    }
  }
  return result + lark_string(literal);
}

std::pair<std::string_view, std::string> MarkupWriter::split(std::string_view source) const {
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::string_view mark = markup_at(source.substr(i));
    if (mark.empty() || !reference_(mark).starts_with('<')) continue;
    return {source.substr(0, i), text(source.substr(i))};
  }
  return {source, {}};
}

}  // namespace espalier::chat
