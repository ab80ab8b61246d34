#pragma once

#include <iosfwd>

namespace espalier::cli {

/// Writes every parameter of every dialect: endpoint, name, handling, note; one a line.
void print_parameter_table(std::ostream& output);

}  // namespace espalier::cli
