#pragma once

#include <string>

namespace espalier::cli {

/// Everything on standard input.
std::string read_standard_input();

}  // namespace espalier::cli
