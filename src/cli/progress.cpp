#include "cli/progress.h"

#include <iostream>

#include <unistd.h>

namespace espalier::cli {

std::function<void(int done, int total)> show_progress(std::string what) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [what = std::move(what)](int done, int total) {
    std::cerr << "\r" << what << " " << done << "/" << total << (done == total ? "\n" : "")
              << std::flush;
  };
}

}  // namespace espalier::cli
