#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/text_cursor.h"

namespace espalier::chat {

enum class LiteralSyntax { json, python };

/// Text between these two is taken as it stands in values between tags.
inline constexpr std::string_view cdata_open = "<![CDATA[";
inline constexpr std::string_view cdata_close = "]]>";

/// Appends `text` as a JSON string without the quotes.
void append_escaped(std::string_view text, std::string& json);
/// `text` as a JSON string.
std::string json_string(std::string_view text);

/// Takes one JSON value, or one Python literal, and gives it to `sink` as JSON text, piece by
/// piece. JSON is given as it was written, digits and white space too; what models write instead of
/// JSON is mended: single quotes, True, False and None, raw line ends in strings, a comma before a
/// bracket that closes. False when it is no such value or ends too early, or when one of `stops`
/// follows a raw line end in a string; what had been taken has been given to `sink`.
Task<bool> copy_literal(TextCursor& in, LiteralSyntax syntax, const std::vector<std::string>& stops,
                        const TextSink& sink);

/// Takes a JSON string and gives its text to `sink`; false when it does not end or is none.
Task<bool> copy_string(TextCursor& in, const TextSink& sink);
/// The same into `text`.
Task<bool> take_string(TextCursor& in, std::string& text);

/// A whole text as one value; nothing when it is none.
std::optional<std::string> literal_to_json(std::string_view text, LiteralSyntax syntax);

/// Decodes a JSON string, piece by piece; its quotes may be there or not.
class StringDecoder {
 public:
  /// Appends to `text` what `piece` completes.
  void push(std::string_view piece, std::string& text);

 private:
  void finish_escape(std::string& text);
  void flush_surrogate(std::string& text);

  std::string escape_;
  unsigned high_ = 0;  // a high surrogate that waits for its low one
};

}  // namespace espalier::chat
