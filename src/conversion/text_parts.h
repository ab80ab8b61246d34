#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::conversion {

/// `count` pieces of a calibration text, evenly spread, each of `part_tokens` tokens. Throws
/// `UsageError` where the text has fewer tokens than they need together.
std::vector<std::vector<std::int32_t>> cut_text(const std::vector<std::int32_t>& tokens,
                                                std::size_t count, std::size_t part_tokens);

}  // namespace espalier::conversion
