#pragma once

#include <array>
#include <string_view>

namespace espalier::chat {

/// A JSON object, or one argument after the other in tags or in a list.
enum class ArgumentForm { json, tagged, listed };

// In the texts of a form, these bytes stand for rules.
inline constexpr char number_byte = '\x01';  // a number
inline constexpr char id_byte = '\x02';      // ten letters and digits

/// Texts of which one ends a value; the empty ones are none.
using ValueStops = std::array<std::string_view, 3>;

/// The texts around calls. Call: `open` NAME `name_end` ARGUMENTS `close`.
struct CallForm {
  std::string_view dialect;
  std::string_view begin = "";
  std::string_view open = "";
  std::string_view name_end = "";
  std::string_view close = "";
  std::string_view separator = "";
  std::string_view end = "";
  bool single = false;  // the dialect has room for one call
  ArgumentForm arguments = ArgumentForm::json;
  // Of an argument that is no JSON: `key_open` KEY `key_end` VALUE `value_end`.
  std::string_view key_open = "";
  std::string_view key_end = "";
  std::string_view value_end = "";
  std::string_view quote = "";           // around strings; empty: they have none
  std::string_view string_key_end = "";  // in place of key_end before strings
  // Texts at which the parser takes a value without quotes to be at its end.
  ValueStops stops = {};
  bool drops_line_ends = false;  // the parser takes line ends at a value's edges for the form's
};

/// The form of a dialect, by its name.
const CallForm& find_form(std::string_view dialect);

}  // namespace espalier::chat
