#include "cli/option_checks.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <system_error>

namespace espalier::cli {
namespace {

template <typename Number>
std::optional<Number> read(const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::string refusal(const std::string& wanted, const std::string& found) {
  return "must be " + wanted + ", not " + (found.empty() ? "empty" : found);
}

std::string shown(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

/// "from 1 to 9", "at least 1" where nothing greater can be written.
std::string range(const std::string& least, const std::string& most, bool open) {
  return open ? " of at least " + least : " from " + least + " to " + most;
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        const auto number = read<std::int64_t>(text);
        if (number && *number >= least && *number <= most) return "";
        // An open range is named as such to whoever stays below it.
        const bool open = most == std::numeric_limits<int>::max() && number && *number < least;
        return refusal("a whole number" + range(std::to_string(least), std::to_string(most), open),
                       text);
      },
      "");
}

CLI::Validator real_number(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        const auto number = read<double>(text);
        if (number && std::isfinite(*number) && *number >= least && *number <= most) return "";
        return refusal("a number" + range(shown(least), shown(most), false), text);
      },
      "");
}

CLI::Validator seed_number() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        if (read<std::uint64_t>(text)) return "";
        return refusal("a whole number from 0 to 18446744073709551615", text);
      },
      "");
}

CLI::Validator some_text() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        return text.empty() ? "must not be empty" : "";
      },
      "");
}

CLI::Validator choice(std::vector<std::pair<std::string, std::string>> words) {
  return CLI::Validator(
      [words = std::move(words)](std::string& text) -> std::string {
        std::string wanted;
        for (const auto& [word, meaning] : words) {
          if (word == text) {
            text = meaning;
            return "";
          }
          const bool last = word == words.back().first;
          wanted += (wanted.empty() ? "" : last ? " or " : ", ") + word;
        }
        return refusal(wanted, text);
      },
      "");
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, std::string>> pairs;
  pairs.reserve(words.size());
  for (const std::string& word : words) pairs.emplace_back(word, word);
  return choice(std::move(pairs));
}

}  // namespace espalier::cli
