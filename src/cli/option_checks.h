#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace espalier::cli {

// Checks of options whose messages say what is wanted. They also refuse what the conversion of the
// text would pass over: a fraction, an overflow, a sign where there is none.

/// A whole number within limits, by default those of an `int`.
CLI::Validator whole_number(std::int64_t least,
                            std::int64_t most = std::numeric_limits<int>::max());

/// A finite number within limits.
CLI::Validator real_number(double least, double most);

inline constexpr double most_temperature = 1e6;

/// A seed: a whole number of 64 bits without sign.
CLI::Validator seed_number();

/// One of these words, for which the second of its pair is taken; use with `transform`.
CLI::Validator choice(std::vector<std::pair<std::string, std::string>> words);

/// Any text but none.
CLI::Validator some_text();

/// One of these words as they are.
CLI::Validator one_of(const std::vector<std::string>& words);

}  // namespace espalier::cli
