#include "quantization/trellis_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace espalier::quantization {
namespace {

using kernels::trellis_block_weights;

/// By how much the search shrinks a row of Gaussian numbers, for 2, 3 and 4 bits: the values that
/// gave the least error on unit Gaussians.
constexpr double shrinkage[] = {0.95, 0.90, 0.90};
constexpr float smallest_half = 0x1p-24F;
constexpr float largest_half = 65504.0F;

/// Rounds to f16; a number below its range becomes the smallest, so that no scale is zero.
float to_half_range(double scale) {
  const double limited =
      std::clamp(scale, static_cast<double>(smallest_half), static_cast<double>(largest_half));
  return static_cast<float>(static_cast<_Float16>(static_cast<float>(limited)));
}

}  // namespace

std::uint16_t half_bits(float value) {
  const auto half = static_cast<_Float16>(value);
  std::uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

TrellisRow::TrellisRow(const kernels::TrellisFormat& format, TrellisScale scale)
    : format_(format), scale_(scale), search_(format) {
  if (format.half_bit) {
    kernels::TrellisFormat wider = format;
    wider.bits += 1;
    even_search_.emplace(wider);
  }
}

float TrellisRow::first_scale(const float* row, int columns) const {
  double squares = 0;
  for (int i = 0; i < columns; ++i) {
    squares += static_cast<double>(row[i]) * row[i];
  }
  if (squares == 0) return 1.0F;
  const double size = std::sqrt(squares / columns) / search_.root_mean_square();
  const double factor = scale_ == TrellisScale::refitted ? 1 / shrinkage[format_.bits - 2] : 1.0;
  return to_half_range(static_cast<float>(size * factor));
}

void TrellisRow::search(const float* values, float scale, int first_block, int blocks,
                        std::uint32_t* words, float* decoded) {
  scaled_.resize(trellis_block_weights);
  for (int i = 0; i < blocks; ++i) {
    const int block = first_block + i;
    const int first = i * trellis_block_weights;
    for (int k = 0; k < trellis_block_weights; ++k) {
      scaled_[k] = values[first + k] / scale;
    }
    kernels::TrellisSearch& search = even_search_ && block % 2 == 0 ? *even_search_ : search_;
    search.encode(scaled_.data(), words + format_.words(block), decoded + first);
  }
}

float TrellisRow::fit(const float* row, const float* decoded, int columns, float scale) const {
  if (scale_ != TrellisScale::refitted) return scale;
  double product = 0;
  double squares = 0;
  for (int i = 0; i < columns; ++i) {
    product += static_cast<double>(decoded[i]) * row[i];
    squares += static_cast<double>(decoded[i]) * decoded[i];
  }
  return product > 0 ? to_half_range(product / squares) : scale;
}

}  // namespace espalier::quantization
