#pragma once

#include <string>
#include <string_view>

#include <espalier_text.h>

namespace espalier::tokenizer {

/// Borrows `text` for a call of the text library.
inline espalier_text_bytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// Copies a buffer of the text library and frees it.
inline std::string take(espalier_text_buffer buffer) {
  std::string text(reinterpret_cast<const char*>(buffer.data), buffer.size);
  espalier_text_buffer_free(buffer);
  return text;
}

/// Why the text library's last call on this thread failed.
inline std::string last_text_error() {
  const espalier_text_bytes message = espalier_text_last_error();
  return {reinterpret_cast<const char*>(message.data), message.size};
}

}  // namespace espalier::tokenizer
