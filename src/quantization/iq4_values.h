#pragma once

#include <array>
#include <cstdint>

namespace espalier::quantization {

/// What the 4-bit codes of IQ4_NL and IQ4_XS stand for, ascending.
inline constexpr std::array<std::int8_t, 16> iq4_values = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace espalier::quantization
