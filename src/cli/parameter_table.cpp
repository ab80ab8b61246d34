#include "cli/parameter_table.h"

#include <algorithm>
#include <iomanip>
#include <ostream>

#include "server/openai/parameters.h"

namespace espalier::cli {

void print_parameter_table(std::ostream& output) {
  const auto rows = server::openai::list_parameters();
  std::size_t endpoint_width = 0;
  std::size_t name_width = 0;
  for (const auto& row : rows) {
    endpoint_width = std::max(endpoint_width, row.endpoint.size());
    name_width = std::max(name_width, row.name.size());
  }
  for (const auto& row : rows) {
    output << std::left << std::setw(static_cast<int>(endpoint_width) + 2) << row.endpoint
           << std::setw(static_cast<int>(name_width) + 2) << row.name << std::setw(10)
           << server::protocol::handling_name(row.handling) << row.note << "\n";
  }
}

}  // namespace espalier::cli
