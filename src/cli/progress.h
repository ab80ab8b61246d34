#pragma once

#include <functional>
#include <string>

namespace espalier::cli {

/// A callback that shows `what done/total` on one line of a terminal's standard error and clears it
/// at the end; does nothing when standard error is no terminal.
std::function<void(int done, int total)> progress_line(const std::string& what);

}  // namespace espalier::cli
