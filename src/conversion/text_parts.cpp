#include "conversion/text_parts.h"

#include <string>

#include "base/error.h"

namespace espalier::conversion {

std::vector<std::vector<std::int32_t>> cut_text(const std::vector<std::int32_t>& tokens,
                                                std::size_t count, std::size_t part_tokens) {
  if (tokens.size() < count * part_tokens) {
    throw base::UsageError("the calibration text has " + std::to_string(tokens.size()) +
                           " tokens; at least " + std::to_string(count * part_tokens) +
                           " are needed");
  }
  std::vector<std::vector<std::int32_t>> parts;
  const std::size_t stride = tokens.size() / count;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i * stride);
    parts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(part_tokens));
  }
  return parts;
}

}  // namespace espalier::conversion
