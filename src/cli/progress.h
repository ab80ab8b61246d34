#pragma once

#include <functional>
#include <string>

namespace espalier::cli {

/// Shows "WHAT done/total, M:SS left" on one line of standard error, when that is a terminal.
std::function<void(int done, int total)> show_progress(std::string what);

}  // namespace espalier::cli
