#pragma once

#include <string>

#include "server/protocol/parameter.h"

namespace espalier::cli {

/// Everything on standard input.
std::string read_standard_input();

/// The bytes of a file. Throws `LoadError` naming it and the reason.
std::string read_file(const std::string& path);

/// The JSON on standard input. Throws `LoadError` saying where it is none.
server::protocol::Json read_json_input();

/// `text` if it is UTF-8; else throws `LoadError` saying where `name` is not.
std::string require_utf8(std::string text, const std::string& name);

}  // namespace espalier::cli
