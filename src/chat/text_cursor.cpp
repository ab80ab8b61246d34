#include "chat/text_cursor.h"

#include <array>

namespace espalier::chat {
namespace {

struct MarkerMatch {
  std::size_t index = TextCursor::none;
  bool open = false;  // more text may make it another marker
};

/// The longest marker that `text` starts with.
MarkerMatch match_markers(std::string_view text, const std::vector<std::string>& markers) {
  MarkerMatch match;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < markers.size(); ++i) {
    const std::string_view marker = markers[i];
    if (text.starts_with(marker)) {
      if (marker.size() > longest) {
        longest = marker.size();
        match.index = i;
      }
    } else if (marker.starts_with(text)) {
      match.open = true;
    }
  }
  return match;
}

std::array<bool, 256> first_bytes(const std::vector<std::string>& markers) {
  std::array<bool, 256> bytes{};
  for (const std::string& marker : markers)
    bytes[static_cast<unsigned char>(marker.front())] = true;
  return bytes;
}

}  // namespace

void TextCursor::append(std::string_view text) {
  text_ += text;
  wake();
}

void TextCursor::close() {
  closed_ = true;
  wake();
}

void TextCursor::wake() {
  if (const auto handle = std::exchange(waiting_, {})) handle.resume();
}

Task<char> TextCursor::peek() {
  while (rest().empty()) {
    const bool grown = co_await more();
    if (!grown) break;
  }
  co_return rest().empty() ? '\0' : rest().front();
}

Task<std::string> TextCursor::take_space() {
  std::string space;
  while (true) {
    while (!rest().empty() && is_space(rest().front())) {
      space += rest().front();
      advance(1);
    }
    if (!rest().empty()) break;
    const bool grown = co_await more();
    if (!grown) break;
  }
  co_return space;
}

Task<bool> TextCursor::at(std::string_view literal) {
  while (true) {
    if (rest().size() >= literal.size()) co_return rest().starts_with(literal);
    if (!literal.starts_with(rest())) co_return false;
    const bool grown = co_await more();
    if (!grown) co_return false;
  }
}

Task<bool> TextCursor::take(std::string_view literal) {
  const bool found = co_await at(literal);
  if (found) advance(literal.size());
  co_return found;
}

Task<std::size_t> TextCursor::at_any(const std::vector<std::string>& markers) {
  while (true) {
    const MarkerMatch match = match_markers(rest(), markers);
    if (!match.open) co_return match.index;
    const bool grown = co_await more();
    if (!grown) co_return match_markers(rest(), markers).index;
  }
}

Task<std::size_t> TextCursor::copy_until(const std::vector<std::string>& markers,
                                         const TextSink& sink) {
  const std::array<bool, 256> starts = first_bytes(markers);
  bool grown = true;
  while (true) {
    const std::string_view text = rest();
    std::size_t plain = 0;
    MarkerMatch match;
    for (; plain < text.size(); ++plain) {
      if (!starts[static_cast<unsigned char>(text[plain])]) continue;
      match = match_markers(text.substr(plain), markers);
      if (match.index != none || (match.open && grown)) break;
    }
    if (plain > 0) sink(text.substr(0, plain));
    advance(plain);
    if (match.index != none && !(match.open && grown)) co_return match.index;
    if (!grown) co_return none;
    grown = co_await more();
  }
}

Task<bool> TextCursor::read_until(std::string_view marker, std::size_t limit, std::string& text) {
  while (true) {
    const std::size_t found = rest().substr(0, limit + marker.size()).find(marker);
    if (found != std::string_view::npos) {
      text = rest().substr(0, found);
      advance(found + marker.size());
      co_return true;
    }
    if (rest().size() >= limit + marker.size()) co_return false;
    const bool grown = co_await more();
    if (!grown) break;
  }
  advance(rest().size());
  co_return false;
}

}  // namespace espalier::chat
