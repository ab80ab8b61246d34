#include "chat/literal_scanner.h"

#include <array>
#include <cctype>

namespace espalier::chat {
namespace {

constexpr unsigned replacement = 0xFFFD;

bool is_hex(char byte) { return std::isxdigit(static_cast<unsigned char>(byte)) != 0; }

bool is_word_byte(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) != 0 || byte == '+' || byte == '-' ||
         byte == '.' || byte == '_';
}

char closing_bracket(char bracket) {
  switch (bracket) {
    case '{':
      return '}';
    case '[':
      return ']';
    default:
      return ')';
  }
}

void append_code_point(unsigned code, std::string& text) {
  const auto byte = [&text](unsigned value) { text += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | (code >> 6));
    byte(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    byte(0xE0 | (code >> 12));
    byte(0x80 | ((code >> 6) & 0x3F));
    byte(0x80 | (code & 0x3F));
  } else {
    byte(0xF0 | (code >> 18));
    byte(0x80 | ((code >> 12) & 0x3F));
    byte(0x80 | ((code >> 6) & 0x3F));
    byte(0x80 | (code & 0x3F));
  }
}

unsigned hex_value(std::string_view digits) {
  return static_cast<unsigned>(std::stoul(std::string(digits), nullptr, 16));
}

/// How many hexadecimal digits follow an escape's letter.
std::size_t escape_digits(char letter, LiteralSyntax syntax) {
  if (letter == 'u') return 4;
  if (letter == 'x') return 2;
  return letter == 'U' && syntax == LiteralSyntax::python ? 8 : 0;
}

/// A complete escape as JSON: what JSON knows stays as it was written.
std::string json_escape(const std::string& escape, LiteralSyntax syntax) {
  const char letter = escape[1];
  static constexpr std::string_view shared = "\"\\bfnrt";
  if (shared.find(letter) != std::string_view::npos) return escape;
  if (letter == '/' && syntax == LiteralSyntax::json) return escape;
  if (letter == '\'') return "'";
  if (letter == '\n' && syntax == LiteralSyntax::python) return "";
  const std::size_t digits = escape_digits(letter, syntax);
  if (digits > 0 && escape.size() == 2 + digits) {
    if (letter == 'u') return escape;
    if (letter == 'x') return "\\u00" + escape.substr(2);
    std::string text;
    const unsigned code = hex_value(std::string_view(escape).substr(2));
    append_code_point(code > 0x10FFFF ? replacement : code, text);
    return text;
  }
  std::string text = "\\\\";
  append_escaped(std::string_view(escape).substr(1), text);
  return text;
}

}  // namespace

void append_escaped(std::string_view text, std::string& json) {
  static constexpr std::string_view hex = "0123456789abcdef";
  for (const char byte : text) {
    switch (byte) {
      case '"':
        json += "\\\"";
        break;
      case '\\':
        json += "\\\\";
        break;
      case '\n':
        json += "\\n";
        break;
      case '\r':
        json += "\\r";
        break;
      case '\t':
        json += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(byte) < 0x20) {
          json += "\\u00";
          json += hex[static_cast<unsigned char>(byte) >> 4];
          json += hex[byte & 0xF];
        } else {
          json += byte;
        }
    }
  }
}

std::string json_string(std::string_view text) {
  std::string json = "\"";
  append_escaped(text, json);
  return json + "\"";
}

void StringDecoder::push(std::string_view piece, std::string& text) {
  for (const char byte : piece) {
    if (escape_.empty() && byte != '\\') {
      flush_surrogate(text);
      if (byte != '"') text += byte;
      continue;
    }
    escape_ += byte;
    const bool unicode = escape_.size() >= 2 && escape_[1] == 'u';
    if (escape_.size() == (unicode ? 6U : 2U)) finish_escape(text);
  }
}

void StringDecoder::flush_surrogate(std::string& text) {
  if (std::exchange(high_, 0) != 0) append_code_point(replacement, text);
}

void StringDecoder::finish_escape(std::string& text) {
  const std::string escape = std::exchange(escape_, {});
  if (escape[1] != 'u') {
    flush_surrogate(text);
    static constexpr std::string_view letters = "bfnrt";
    static constexpr std::string_view controls = "\b\f\n\r\t";
    const std::size_t control = letters.find(escape[1]);
    text += control == std::string_view::npos ? escape[1] : controls[control];
    return;
  }
  const unsigned code = hex_value(std::string_view(escape).substr(2));
  const bool low = code >= 0xDC00 && code < 0xE000;
  if (low && high_ != 0) {
    append_code_point(0x10000 + ((high_ - 0xD800) << 10) + (code - 0xDC00), text);
    high_ = 0;
    return;
  }
  flush_surrogate(text);
  if (code >= 0xD800 && code < 0xDC00) {
    high_ = code;
  } else {
    append_code_point(low ? replacement : code, text);
  }
}

std::size_t LiteralScanner::read(std::string_view text, std::string& json) {
  state_ = State::running;
  std::size_t taken = 0;
  while (taken < text.size() && state_ == State::running) {
    const char byte = text[taken];
    bool took = false;
    switch (place_) {
      case Place::outside:
        took = read_outside(byte, json);
        break;
      case Place::word:
        took = read_word(byte, json);
        break;
      case Place::string:
        took = read_string(byte, json);
        break;
      case Place::empty_string:
        took = read_empty_string(byte, json);
        break;
    }
    if (took) ++taken;
  }
  return taken;
}

void LiteralScanner::finish(std::string& json) {
  if (place_ == Place::word) {
    flush_word(json);
    end_value();
  } else if (place_ == Place::empty_string) {
    json += '"';
    end_value();
  } else {
    flush_comma(json);
    flush_quotes(json);
    json += std::exchange(escape_, {});
  }
  if (state_ != State::done) state_ = State::failed;
}

bool LiteralScanner::read_outside(char byte, std::string& json) {
  if (is_space(byte)) {
    (comma_.empty() ? json : comma_) += byte;
    return true;
  }
  switch (byte) {
    case '{':
    case '[':
      open(byte, json);
      return true;
    case '(':
      if (syntax_ == LiteralSyntax::json) break;
      open(byte, json);
      return true;
    case '}':
    case ']':
    case ')':
      return close(byte, json);
    case ',':
    case ':':
      if (brackets_.empty()) break;
      flush_comma(json);
      (byte == ',' ? comma_ : json) += byte;
      return true;
    case '"':
    case '\'':
      flush_comma(json);
      json += '"';
      quote_ = byte;
      place_ = syntax_ == LiteralSyntax::python ? Place::empty_string : Place::string;
      triple_ = false;
      quotes_ = 0;
      return true;
    default:
      if (!is_word_byte(byte)) break;
      flush_comma(json);
      word_ = byte;
      place_ = Place::word;
      return true;
  }
  state_ = State::failed;
  return false;
}

void LiteralScanner::open(char bracket, std::string& json) {
  flush_comma(json);
  brackets_ += bracket;
  json += bracket == '(' ? '[' : bracket;
}

bool LiteralScanner::close(char bracket, std::string& json) {
  if (brackets_.empty() || closing_bracket(brackets_.back()) != bracket) {
    state_ = State::failed;
    return false;
  }
  if (!comma_.empty()) json += comma_.substr(1);
  comma_.clear();
  brackets_.pop_back();
  json += bracket == ')' ? ']' : bracket;
  end_value();
  return true;
}

void LiteralScanner::end_value() {
  place_ = Place::outside;
  if (brackets_.empty()) state_ = State::done;
}

void LiteralScanner::flush_comma(std::string& json) { json += std::exchange(comma_, {}); }

bool LiteralScanner::read_word(char byte, std::string& json) {
  if (is_word_byte(byte)) {
    word_ += byte;
    return true;
  }
  const bool prefix = syntax_ == LiteralSyntax::python && (byte == '"' || byte == '\'') &&
                      word_.size() == 1 &&
                      std::string_view("bBfFrRuU").find(word_[0]) != std::string_view::npos;
  if (prefix) {
    word_.clear();
    place_ = Place::outside;
    return false;
  }
  flush_word(json);
  end_value();
  return false;
}

void LiteralScanner::flush_word(std::string& json) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> words = {
      {{"True", "true"}, {"False", "false"}, {"None", "null"}}};
  for (const auto& [python, name] : words) {
    if (word_ == python) word_ = name;
  }
  json += std::exchange(word_, {});
}

bool LiteralScanner::read_empty_string(char byte, std::string& json) {
  if (triple_) {  // two quotes have come; a third opens a long string
    if (byte == quote_) {
      place_ = Place::string;
      return true;
    }
    triple_ = false;
    json += '"';
    end_value();
    return false;
  }
  if (byte == quote_) {
    triple_ = true;
    return true;
  }
  place_ = Place::string;
  return read_string(byte, json);
}

bool LiteralScanner::read_string(char byte, std::string& json) {
  if (!escape_.empty()) {
    if (escape_.size() == 1 || is_hex(byte)) {
      read_escape(byte, json);
      return true;
    }
    json += json_escape(std::exchange(escape_, {}), syntax_);  // cut short
  }
  if (byte == quote_) {
    read_quote(json);
    return true;
  }
  flush_quotes(json);
  if (byte == '\\') {
    escape_ = byte;
    return true;
  }
  if (byte == '\n' && !triple_ && !std::exchange(line_end_accepted_, false)) {
    state_ = State::line_end;
    return false;
  }
  append_escaped(std::string_view(&byte, 1), json);
  return true;
}

void LiteralScanner::flush_quotes(std::string& json) {
  append_escaped(std::string(static_cast<std::size_t>(std::exchange(quotes_, 0)), quote_), json);
}

void LiteralScanner::read_quote(std::string& json) {
  if (triple_ && ++quotes_ < 3) return;
  quotes_ = 0;
  json += '"';
  end_value();
}

void LiteralScanner::read_escape(char byte, std::string& json) {
  escape_ += byte;
  if (escape_.size() == 2 + escape_digits(escape_[1], syntax_)) {
    json += json_escape(std::exchange(escape_, {}), syntax_);
  }
}

}  // namespace espalier::chat
