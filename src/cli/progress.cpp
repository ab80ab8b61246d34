#include "cli/progress.h"

#include <iostream>

#include <unistd.h>

namespace espalier::cli {

std::function<void(int, int)> progress_line(const std::string& what) {
  if (isatty(STDERR_FILENO) == 0) return [](int, int) {};
  return [what](int done, int total) {
    // Carriage return and "erase to the end of the line" keep the display on one line.
    std::cerr << "\r\x1b[K";
    if (done < total) std::cerr << what << ' ' << done << '/' << total;
    std::cerr << std::flush;
  };
}

}  // namespace espalier::cli
