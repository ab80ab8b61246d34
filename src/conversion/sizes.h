#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::conversion {

/// Bits of the words in which MLX packs codes.
inline constexpr int word_bits = 32;

/// A size as containers count it; never negative.
inline std::size_t size(std::int64_t number) { return static_cast<std::size_t>(number); }

}  // namespace espalier::conversion
