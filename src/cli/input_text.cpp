#include "cli/input_text.h"

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "server/protocol/json_text.h"

namespace espalier::cli {

namespace {

/// The length of the character that `text` begins with; 0 when that is not UTF-8 (Unicode 15,
/// table 3-7).
std::size_t character_length(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  const unsigned least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < least || byte(1) > most) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

/// How many bytes at the beginning of `text` are UTF-8.
std::size_t utf8_length(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const std::size_t character = character_length(text.substr(length));
    if (character == 0) break;
    length += character;
  }
  return length;
}

}  // namespace

std::string read_standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // A folder opens, but reading it fails.
  if (!file || (file.peek() != std::ifstream::traits_type::eof() && !(text << file.rdbuf())) ||
      file.bad()) {
    const std::error_code reason(errno, std::generic_category());
    throw base::LoadError("cannot read " + path + ": " + reason.message());
  }
  return std::move(text).str();
}

server::protocol::Json read_json_input() {
  try {
    return server::protocol::parse_json(read_standard_input());
  } catch (const server::protocol::JsonError& error) {
    const std::string place = error.byte() > 0 ? " at byte " + std::to_string(error.byte()) : "";
    throw base::LoadError("the JSON on standard input " + std::string(error.what()) + place);
  }
}

std::string require_utf8(std::string text, const std::string& name) {
  const std::size_t good = utf8_length(text);
  if (good == text.size()) return text;
  throw base::LoadError(name + " is not UTF-8 at byte " + std::to_string(good + 1));
}

}  // namespace espalier::cli
