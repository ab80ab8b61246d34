#include "quantization/trellis_encoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/trellis_search.h"

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

std::uint16_t half_bits(float value) {
  const auto half = static_cast<_Float16>(value);
  std::uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

/// Codes one row; one per thread.
class RowEncoder {
 public:
  RowEncoder(int columns, const kernels::TrellisFormat& format, TrellisScale scale)
      : format_(format), scale_(scale), search_(format), scaled_(columns), decoded_(columns) {
    if (format.half_bit) {
      kernels::TrellisFormat wider = format;
      wider.bits += 1;
      even_search_.emplace(wider);
    }
  }

  /// Returns the square error.
  double encode(const float* row, std::uint32_t* words, std::uint16_t* scale_bits) {
    const auto columns = static_cast<int>(scaled_.size());
    double squares = 0;
    for (int i = 0; i < columns; ++i) {
      squares += static_cast<double>(row[i]) * row[i];
    }
    const double size = std::sqrt(squares / columns) / search_.root_mean_square();
    const double factor = scale_ == TrellisScale::refitted ? 1 / shrinkage[format_.bits - 2] : 1.0;
    float scale = squares == 0 ? 1.0F : to_half_range(static_cast<float>(size * factor));
    for (int i = 0; i < columns; ++i) {
      scaled_[i] = row[i] / scale;
    }
    for (int first = 0; first < columns; first += trellis_block_weights) {
      const int block = first / trellis_block_weights;
      kernels::TrellisSearch& search = even_search_ && block % 2 == 0 ? *even_search_ : search_;
      search.encode(scaled_.data() + first, words + format_.words(block), decoded_.data() + first);
    }
    if (scale_ == TrellisScale::refitted && squares != 0) {
      scale = refit(row, scale);
    }
    *scale_bits = half_bits(scale);
    double error = 0;
    for (int i = 0; i < columns; ++i) {
      const double difference = static_cast<double>(decoded_[i]) * scale - row[i];
      error += difference * difference;
    }
    return error;
  }

 private:
  /// The scale of least square error for the decoded numbers.
  float refit(const float* row, float scale) const {
    double product = 0;
    double squares = 0;
    for (std::size_t i = 0; i < decoded_.size(); ++i) {
      product += static_cast<double>(decoded_[i]) * row[i];
      squares += static_cast<double>(decoded_[i]) * decoded_[i];
    }
    return product > 0 ? to_half_range(product / squares) : scale;
  }

  kernels::TrellisFormat format_;
  TrellisScale scale_;
  kernels::TrellisSearch search_;
  std::optional<kernels::TrellisSearch> even_search_;  // where even trellis blocks differ
  std::vector<float> scaled_;
  std::vector<float> decoded_;
};

}  // namespace

TrellisCodes encode_trellis(const float* values, int rows, int columns,
                            const kernels::TrellisFormat& format, TrellisScale scale,
                            const std::function<void(int)>& progress) {
  if (columns <= 0 || columns % trellis_block_weights != 0) {
    throw std::invalid_argument("[encode_trellis] expected a multiple of 256 columns");
  }
  const std::size_t count = static_cast<std::size_t>(rows) * columns;
  if (!std::all_of(values, values + count, [](float value) { return std::isfinite(value); })) {
    throw base::LoadError("a weight to be coded holds a number that is not finite.");
  }
  const auto row_words = static_cast<std::size_t>(format.words(columns / trellis_block_weights));
  TrellisCodes codes{.words = std::vector<std::uint32_t>(rows * row_words),
                     .scales = std::vector<std::uint16_t>(rows),
                     .square_error = 0};
  std::vector<double> errors(rows);
  std::atomic<int> done = 0;
  base::TileCounter counter(rows);
  base::compute_pool().run([&](int) {
    RowEncoder encoder(columns, format, scale);
    for (std::size_t row; counter.next(row);) {
      errors[row] = encoder.encode(values + row * columns, codes.words.data() + row * row_words,
                                   &codes.scales[row]);
      const int finished = done.fetch_add(1) + 1;
      if (progress) {
        progress(finished);
      }
    }
  });
  for (const double error : errors) {
    codes.square_error += error;
  }
  return codes;
}

}  // namespace espalier::quantization
