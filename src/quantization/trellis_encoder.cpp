#include "quantization/trellis_encoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>

#include "base/error.h"
#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "quantization/trellis_row.h"

namespace espalier::quantization {
namespace {

using kernels::trellis_block_weights;

/// Codes one row whole; returns the square error.
double encode_row(TrellisRow& encoder, const float* row, int columns, std::vector<float>& decoded,
                  std::uint32_t* words, std::uint16_t* scale_bits) {
  const float first = encoder.first_scale(row, nullptr, columns);
  encoder.search(row, nullptr, first, 0, columns / trellis_block_weights, words, decoded.data());
  const float scale = encoder.fit(row, decoded.data(), columns, first);
  *scale_bits = half_bits(scale);
  double error = 0;
  for (int i = 0; i < columns; ++i) {
    const double difference = static_cast<double>(decoded[i]) * scale - row[i];
    error += difference * difference;
  }
  return error;
}

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
    TrellisRow encoder(format, scale);
    std::vector<float> decoded(columns);
    for (std::size_t row; counter.next(row);) {
      errors[row] = encode_row(encoder, values + row * columns, columns, decoded,
                               codes.words.data() + row * row_words, &codes.scales[row]);
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
