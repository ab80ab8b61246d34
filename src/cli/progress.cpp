#include "cli/progress.h"

#include <chrono>
#include <cmath>
#include <iostream>
#include <string>
#include <utility>

#include <unistd.h>

namespace espalier::cli {

namespace {

/// ", 3:05 left" for work of which something is done and that takes a while.
std::string time_left(double seconds, int done, int total) {
  constexpr double short_work = 2.0;
  if (done <= 0 || done >= total || seconds < short_work) return "";
  const auto left = static_cast<int>(std::lround(seconds * (total - done) / done));
  const std::string tens = left % 60 < 10 ? "0" : "";
  return ", " + std::to_string(left / 60) + ":" + tens + std::to_string(left % 60) + " left";
}

}  // namespace

std::function<void(int done, int total)> show_progress(std::string what) {
  if (isatty(STDERR_FILENO) == 0) return {};
  using Clock = std::chrono::steady_clock;
  return [what = std::move(what), begin = Clock::now()](int done, int total) {
    const std::chrono::duration<double> passed = Clock::now() - begin;
    std::cerr << "\r\x1b[K" << what << " " << done << "/" << total
              << time_left(passed.count(), done, total) << (done == total ? "\n" : "")
              << std::flush;
  };
}

}  // namespace espalier::cli
