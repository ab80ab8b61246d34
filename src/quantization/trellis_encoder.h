#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/trellis.h"

namespace espalier::quantization {

/// How the scale of a row of S is chosen. `root_mean_square` is what the format's first encoder
/// does; `refitted` searches with a larger scale at first, which suits short rows of Gaussian
/// numbers better, then takes the scale of least square error for the codes found; `searched` also
/// tries larger ones where weights of the row lie beyond the code's reach.
enum class TrellisScale { root_mean_square, refitted, searched };

struct TrellisCodes {
  std::vector<std::uint32_t> words;   // [rows, words of a row]
  std::vector<std::uint16_t> scales;  // f16 bits, [rows]
  double square_error;                // sum over all weights of (decoded - given)^2
};

/// Codes the stored matrix S [rows, columns] row by row, in parallel on the compute pool. Columns
/// must be a multiple of 256; throws `std::invalid_argument` otherwise and `LoadError` where a
/// number is not finite. `progress` is called with the rows done, from any thread.
TrellisCodes encode_trellis(const float* values, int rows, int columns,
                            const kernels::TrellisFormat& format, TrellisScale scale,
                            const std::function<void(int)>& progress = {});

}  // namespace espalier::quantization
