#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

namespace espalier::cli {

/// Everything on standard input.
std::string read_standard_input();

/// Parses JSON text; throws `std::runtime_error` naming `what` and the position.
nlohmann::ordered_json parse_json(const std::string& text, const std::string& what);

/// Answers each line of standard input, one request a line, with one line on standard output:
/// `{key: convert(request)}`, or `{"error": message}` when the line or its conversion fails.
void answer_lines(
    const std::string& key,
    const std::function<nlohmann::ordered_json(const nlohmann::ordered_json&)>& convert);

}  // namespace espalier::cli
