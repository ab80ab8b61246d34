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
/// The most bits of a weight in a trellis block.
constexpr int largest_bits = 4;
/// A row is looked at more closely when its largest weight exceeds the code's reach so many times;
/// Gaussian rows do not. Scales tried grow by the step.
constexpr float tolerated_cut = 1.1F;
constexpr double scale_step = 1.25;
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

void TrellisRow::code(const float* values, const float* weights, float scale, int block,
                      std::uint32_t* words, float* decoded) {
  float scaled[trellis_block_weights];
  for (int i = 0; i < trellis_block_weights; ++i) scaled[i] = values[i] / scale;
  kernels::TrellisSearch& search = even_search_ && block % 2 == 0 ? *even_search_ : search_;
  search.encode(scaled, weights, words, decoded);
}

float TrellisRow::first_scale(const float* row, const float* weights, int columns) {
  double squares = 0;
  float largest = 0;
  for (int i = 0; i < columns; ++i) {
    squares += static_cast<double>(row[i]) * row[i];
    largest = std::max(largest, std::abs(row[i]));
  }
  if (squares == 0) return 1.0F;
  const double size = std::sqrt(squares / columns) / search_.root_mean_square();
  const bool rms = scale_ == TrellisScale::root_mean_square;
  const float first = to_half_range(rms ? size : size / shrinkage[format_.bits - 2]);
  const bool cut = largest > tolerated_cut * first * search_.largest_value();
  return scale_ == TrellisScale::searched && cut ? search_scale(row, weights, columns, first)
                                                 : first;
}

float TrellisRow::search_scale(const float* row, const float* weights, int columns, float first) {
  const int blocks = columns / trellis_block_weights;
  std::vector<int> cut;  // trellis blocks of which something is cut off
  double rest = 0;       // the error of all others, which grows with the scale's square
  double best_error = 0;
  float largest = 0;
  for (int block = 0; block < blocks; ++block) {
    const float* values = row + block * trellis_block_weights;
    const float* own = weights == nullptr ? nullptr : weights + block * trellis_block_weights;
    const double error = block_error(values, own, first, block);
    float size = 0;
    for (int i = 0; i < trellis_block_weights; ++i) size = std::max(size, std::abs(values[i]));
    best_error += error;
    if (size > first * search_.largest_value()) {
      cut.push_back(block);
    } else {
      rest += error;
    }
    largest = std::max(largest, size);
  }
  float best = first;
  int worse = 0;
  for (double factor = scale_step; worse < 2; factor *= scale_step) {
    const float scale = to_half_range(first * factor);
    double error = rest * factor * factor;
    for (const int block : cut) {
      const int at = block * trellis_block_weights;
      error += block_error(row + at, weights == nullptr ? nullptr : weights + at, scale, block);
    }
    worse = error < best_error ? 0 : worse + 1;
    if (worse == 0) {
      best = scale;
      best_error = error;
    }
    if (scale * search_.largest_value() > largest) break;  // nothing is cut off any more
  }
  return best;
}

double TrellisRow::block_error(const float* values, const float* weights, float scale, int block) {
  std::uint32_t words[kernels::trellis_block_words(largest_bits)];
  float decoded[trellis_block_weights];
  code(values, weights, scale, block, words, decoded);
  double error = 0;
  for (int i = 0; i < trellis_block_weights; ++i) {
    const double difference = static_cast<double>(decoded[i]) * scale - values[i];
    error += difference * difference * (weights == nullptr ? 1.0F : weights[i]);
  }
  return error;
}

void TrellisRow::search(const float* values, const float* weights, float scale, int first_block,
                        int blocks, std::uint32_t* words, float* decoded) {
  for (int i = 0; i < blocks; ++i) {
    const int block = first_block + i;
    const int first = i * trellis_block_weights;
    code(values + first, weights == nullptr ? nullptr : weights + first, scale, block,
         words + format_.words(block), decoded + first);
  }
}

float TrellisRow::fit(const float* row, const float* decoded, int columns, float scale) const {
  if (scale_ == TrellisScale::root_mean_square) return scale;
  double product = 0;
  double squares = 0;
  for (int i = 0; i < columns; ++i) {
    product += static_cast<double>(decoded[i]) * row[i];
    squares += static_cast<double>(decoded[i]) * decoded[i];
  }
  return product > 0 ? to_half_range(product / squares) : scale;
}

}  // namespace espalier::quantization
