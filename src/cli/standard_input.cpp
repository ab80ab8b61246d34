#include "cli/standard_input.h"

#include <iostream>
#include <iterator>
#include <stdexcept>

namespace espalier::cli {

std::string read_standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

nlohmann::ordered_json parse_json(const std::string& text, const std::string& what) {
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw std::runtime_error(what + " is not JSON: at byte " + std::to_string(error.byte) + ".");
  }
}

void answer_lines(
    const std::string& key,
    const std::function<nlohmann::ordered_json(const nlohmann::ordered_json&)>& convert) {
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.empty()) continue;
    nlohmann::ordered_json answer;
    try {
      answer[key] = convert(parse_json(line, "The line"));
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n'
              << std::flush;
  }
}

}  // namespace espalier::cli
