#include "cli/standard_input.h"

#include <iostream>
#include <iterator>

namespace espalier::cli {

std::string read_standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

}  // namespace espalier::cli
