#pragma once

#include <array>
#include <cstdint>

namespace espalier::generation {

/// Philox4x32 with 10 rounds: a counter-based generator, so that each number is a function of key
/// and counter alone (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3",
/// SC 2011).
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);

/// The random number in [0, 1), a multiple of 2^-53, that belongs to position `position` of a
/// sequence with this seed.
double uniform(std::uint64_t seed, std::uint64_t position);

}  // namespace espalier::generation
