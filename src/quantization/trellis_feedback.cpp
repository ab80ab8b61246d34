#include "quantization/trellis_feedback.h"

#include <algorithm>
#include <array>
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

constexpr std::array<double, 5> dampings = {0.01, 0.1, 1, 10, 100};
constexpr float largest_factor = 1e4F;
/// By how much weights may outgrow what they were. Those that hardly count grow tenfold in sound
/// models.
constexpr float largest_growth = 32.0F;
/// Columns of a matrix that one step of the Cholesky factorization takes.
constexpr int panel = 64;
/// Rows that share each read of the factor.
constexpr int tile_rows = 8;
/// Inputs whose errors reach those before them at once, where codes run along the outputs.
constexpr int panel_inputs = 64;

std::size_t size(int number) { return static_cast<std::size_t>(number); }

/// Calls `task(index, worker)` for all below `count` on the compute pool.
template <typename Task>
void parallel_workers(int count, Task&& task) {
  base::TileCounter tiles(size(count));
  base::compute_pool().run([&](int worker) {
    for (std::size_t tile; tiles.next(tile);) task(static_cast<int>(tile), worker);
  });
}

/// The same for a task that does not ask which worker it has.
template <typename Task>
void parallel(int count, Task&& task) {
  parallel_workers(count, [&](int index, int) { task(index); });
}

/// The Cholesky factor in place, row-major, panel by panel; what lies above the diagonal is
/// scratch.
class Cholesky {
 public:
  Cholesky(std::vector<float>& matrix, int width) : matrix_(matrix), width_(width) {}

  /// False when the matrix is not positive definite.
  bool factor() {
    for (int first = 0; first < width_; first += panel) {
      const int last = std::min(first + panel, width_);
      if (!factor_diagonal(first, last)) return false;
      parallel((width_ - last + tile_rows - 1) / tile_rows, [&](int tile) {
        const int begin = last + tile * tile_rows;
        for (int row = begin; row < std::min(begin + tile_rows, width_); ++row) {
          solve(row, first, last);
        }
      });
      gather(first, last);
      parallel((width_ - last + tile_rows - 1) / tile_rows, [&](int tile) {
        const int begin = last + tile * tile_rows;
        for (int row = begin; row < std::min(begin + tile_rows, width_); ++row) {
          update(row, first, last);
        }
      });
    }
    return true;
  }

 private:
  float* at(int row) { return matrix_.data() + size(row) * size(width_); }

  bool factor_diagonal(int first, int last) {
    for (int row = first; row < last; ++row) {
      solve(row, first, row);
      double pivot = at(row)[row];
      for (int k = first; k < row; ++k) pivot -= static_cast<double>(at(row)[k]) * at(row)[k];
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      at(row)[row] = static_cast<float>(std::sqrt(pivot));
    }
    return true;
  }

  /// Columns [first, last) of a row below.
  void solve(int row, int first, int last) {
    for (int column = first; column < last; ++column) {
      double sum = at(row)[column];
      for (int k = first; k < column; ++k) {
        sum -= static_cast<double>(at(row)[k]) * at(column)[k];
      }
      at(row)[column] = static_cast<float>(sum / at(column)[column]);
    }
  }

  /// The panel's columns as rows.
  void gather(int first, int last) {
    columns_.resize(size(last - first) * size(width_));
    for (int row = last; row < width_; ++row) {
      for (int k = first; k < last; ++k) {
        columns_[size(k - first) * size(width_) + size(row)] = at(row)[k];
      }
    }
  }

  void update(int row, int first, int last) {
    float* values = at(row);
    for (int k = first; k < last; ++k) {
      const float factor = values[k];
      const float* column = columns_.data() + size(k - first) * size(width_);
      for (int i = last; i <= row; ++i) values[i] -= factor * column[i];
    }
  }

  std::vector<float>& matrix_;
  int width_;
  std::vector<float> columns_;
};

/// Multiplies the columns of each block by the inverse of its diagonal block, from the right.
void normalize_blocks(std::vector<float>& lower, int width, int block) {
  parallel(width, [&](int row) {
    float* values = lower.data() + size(row) * size(width);
    for (int first = 0; first + block <= row / block * block; first += block) {
      for (int column = first + block - 1; column >= first; --column) {
        const float* diagonal = lower.data() + size(column) * size(width);
        values[column] /= diagonal[column];
        for (int k = first; k < column; ++k) values[k] -= values[column] * diagonal[k];
      }
    }
  });
}

/// The diagonal of D before the blocks are normalized, its mean being 1.
std::vector<float> importance_of(const std::vector<float>& lower, int width, int block) {
  std::vector<float> result(size(width));
  double sum = 0;
  for (int row = 0; row < width; ++row) {
    const float* values = lower.data() + size(row) * size(width);
    double squares = 0;
    for (int k = row / block * block; k <= row; ++k) {
      squares += static_cast<double>(values[k]) * values[k];
    }
    result[size(row)] = static_cast<float>(squares);
    sum += squares;
  }
  for (float& value : result) value = static_cast<float>(value * width / sum);
  return result;
}

bool is_moderate(const std::vector<float>& lower, int width, int block) {
  for (int row = 0; row < width; ++row) {
    const float* values = lower.data() + size(row) * size(width);
    for (int k = 0; k < row / block * block; ++k) {
      if (!(std::abs(values[k]) < largest_factor)) return false;
    }
  }
  return true;
}

/// What both orders share.
class FeedbackEncoder {
 public:
  FeedbackEncoder(const float* values, int rows, int columns, const kernels::TrellisFormat& format,
                  TrellisScale scale, const FeedbackFactor& factor)
      : values_(values),
        rows_(rows),
        columns_(columns),
        row_words_(size(static_cast<int>(format.words(columns / trellis_block_weights)))),
        format_(format),
        scale_(scale),
        factor_(factor),
        first_scales_(size(rows)) {
    codes_.words.resize(size(rows) * row_words_);
    codes_.scales.resize(size(rows));
    // Made by the worker that uses it.
    encoders_.resize(size(base::compute_pool().size()));
    std::vector<float> largest(size(rows));
    parallel_workers(rows, [&](int row, int worker) {
      first_scales_[size(row)] = encoder_of(worker).first_scale(row_of(row), importance(), columns);
      for (int k = 0; k < columns; ++k) {
        largest[size(row)] =
            std::max(largest[size(row)], std::abs(row_of(row)[k]) / first_scales_[size(row)]);
      }
    });
    limit_ = largest_growth * *std::ranges::max_element(largest);
  }

  std::optional<TrellisCodes> encode() {
    errors_.resize(size(rows_));
    if (format_.axis == 1) {
      encode_along_inputs();
    } else {
      encode_along_outputs();
    }
    if (diverged_) return std::nullopt;
    codes_.square_error = 0;
    for (const double error : errors_) codes_.square_error += error;
    return std::move(codes_);
  }

 private:
  TrellisRow& encoder_of(int worker) {
    std::optional<TrellisRow>& encoder = encoders_[size(worker)];
    return encoder ? *encoder : encoder.emplace(format_, scale_);
  }
  /// How much errors at the columns count, null where columns are outputs.
  const float* importance() const {
    return format_.axis == 1 ? factor_.importance.data() : nullptr;
  }
  const float* row_of(int row) const { return values_ + size(row) * size(columns_); }
  const float* lower_of(int input) const {
    return factor_.lower.data() + size(input) * size(factor_.inputs);
  }

  bool grew(const float* values, int count, float scale) const {
    return !std::all_of(values, values + count,
                        [&](float value) { return std::abs(value) <= limit_ * scale; });
  }

  /// Rows are outputs, each for itself; some at a time share what is read of the factor.
  void encode_along_inputs() {
    parallel_workers((rows_ + tile_rows - 1) / tile_rows, [&](int tile, int worker) {
      TrellisRow& encoder = encoder_of(worker);
      const int first = tile * tile_rows;
      const int count = std::min(tile_rows, rows_ - first);
      std::vector<float> wanted(row_of(first), row_of(first + count));
      std::vector<float> decoded(trellis_block_weights);
      std::vector<float> errors(size(count) * trellis_block_weights);
      for (int end = columns_; end > 0 && !diverged_; end -= trellis_block_weights) {
        const int begin = end - trellis_block_weights;
        for (int i = 0; i < count; ++i) {
          const int row = first + i;
          const float scale = first_scales_[size(row)];
          const float* values = wanted.data() + size(i) * size(columns_) + begin;
          if (grew(values, trellis_block_weights, scale)) diverged_ = true;
          encoder.search(values, importance() + begin, scale, begin / trellis_block_weights, 1,
                         codes_.words.data() + size(row) * row_words_, decoded.data());
          for (int k = 0; k < trellis_block_weights; ++k) {
            const float error = row_of(row)[begin + k] - decoded[size(k)] * scale;
            errors[size(i) * trellis_block_weights + size(k)] = error;
            errors_[size(row)] += static_cast<double>(error) * error;
          }
        }
        for (int k = 0; k < trellis_block_weights; ++k) {
          for (int i = 0; i < count; ++i) {
            add(wanted.data() + size(i) * size(columns_), lower_of(begin + k),
                errors[size(i) * trellis_block_weights + size(k)], begin);
          }
        }
      }
      for (int i = 0; i < count; ++i) {
        codes_.scales[size(first + i)] = half_bits(first_scales_[size(first + i)]);
      }
    });
  }

  /// Rows are inputs. Each trellis block of outputs is for itself: from the last input on, each
  /// makes up for the errors of all behind it.
  void encode_along_outputs() {
    std::vector<std::vector<double>> errors(size(columns_ / trellis_block_weights));
    parallel_workers(columns_ / trellis_block_weights, [&](int block, int worker) {
      errors[size(block)].resize(size(rows_));
      encode_outputs(block, encoder_of(worker), errors[size(block)]);
    });
    for (int row = 0; row < rows_; ++row) {
      codes_.scales[size(row)] = half_bits(first_scales_[size(row)]);
      for (const auto& of_block : errors) errors_[size(row)] += of_block[size(row)];
    }
  }

  void encode_outputs(int block, TrellisRow& encoder, std::vector<double>& square_errors) {
    constexpr int width = trellis_block_weights;
    const auto original = [&](int row) { return row_of(row) + size(block) * width; };
    std::vector<float> wanted(size(rows_) * width);
    for (int row = 0; row < rows_; ++row) {
      std::copy_n(original(row), width, wanted.data() + size(row) * width);
    }
    std::vector<float> errors(size(panel_inputs) * width);
    for (int end = rows_; end > 0 && !diverged_; end -= std::min(panel_inputs, end)) {
      const int begin = std::max(0, end - panel_inputs);
      const auto feed = [&](int row, int first) {
        for (int i = first; i < end; ++i) {
          add(wanted.data() + size(row) * width, errors.data() + size(i - begin) * width,
              lower_of(i)[row], width);
        }
      };
      for (int row = end - 1; row >= begin; --row) {
        feed(row, row + 1);
        const float scale = first_scales_[size(row)];
        const float* values = wanted.data() + size(row) * width;
        float* own = errors.data() + size(row - begin) * width;
        if (grew(values, width, scale)) diverged_ = true;
        encoder.search(values, nullptr, scale, block, 1,
                       codes_.words.data() + size(row) * row_words_, own);
        for (int k = 0; k < width; ++k) {
          own[k] = original(row)[k] - own[k] * scale;
          square_errors[size(row)] += static_cast<double>(own[k]) * own[k];
        }
      }
      for (int row = 0; row < begin; ++row) feed(row, begin);
    }
  }

  static void add(float* target, const float* values, float factor, int count) {
    for (int i = 0; i < count; ++i) target[i] += factor * values[i];
  }

  const float* values_;
  int rows_;
  int columns_;
  std::size_t row_words_;
  kernels::TrellisFormat format_;
  TrellisScale scale_;
  const FeedbackFactor& factor_;
  std::vector<float> first_scales_;
  std::vector<std::optional<TrellisRow>> encoders_;  // by worker
  std::vector<double> errors_;
  float limit_ = 0;  // of a weight over its row's scale
  std::atomic<bool> diverged_ = false;
  TrellisCodes codes_{};
};

}  // namespace

int feedback_block(const kernels::TrellisFormat& format) {
  return format.axis == 1 ? trellis_block_weights : 1;
}

std::optional<FeedbackFactor> factor_moments(std::vector<float> moments, int inputs, int block) {
  double trace = 0;
  for (int i = 0; i < inputs; ++i) trace += moments.at(size(i) * size(inputs) + size(i));
  const double mean = trace / inputs;
  const bool finite =
      std::all_of(moments.begin(), moments.end(), [](float x) { return std::isfinite(x); });
  if (!finite || !(mean > 0) || !std::isfinite(mean)) return std::nullopt;
  for (float& value : moments) value = static_cast<float>(value / mean);
  for (const double damping : dampings) {
    FeedbackFactor factor{inputs, block, moments, {}};
    for (int i = 0; i < inputs; ++i) {
      factor.lower[size(i) * size(inputs) + size(i)] += static_cast<float>(damping);
    }
    if (!Cholesky(factor.lower, inputs).factor()) continue;
    factor.importance = importance_of(factor.lower, inputs, block);
    normalize_blocks(factor.lower, inputs, block);
    if (is_moderate(factor.lower, inputs, block)) return factor;
  }
  return std::nullopt;
}

std::optional<TrellisCodes> encode_trellis_with_feedback(const float* values, int rows, int columns,
                                                         const kernels::TrellisFormat& format,
                                                         TrellisScale scale,
                                                         const FeedbackFactor& factor) {
  const int inputs = format.axis == 1 ? columns : rows;
  if (columns <= 0 || columns % trellis_block_weights != 0 || factor.inputs != inputs ||
      factor.block != feedback_block(format)) {
    throw std::invalid_argument(
        "[encode_trellis_with_feedback] expected a multiple of 256 columns and a factor of the "
        "inputs, got " +
        std::to_string(columns) + " columns and " + std::to_string(factor.inputs) + " inputs");
  }
  const std::size_t count = size(rows) * size(columns);
  if (!std::all_of(values, values + count, [](float value) { return std::isfinite(value); })) {
    throw base::LoadError("a weight to be coded holds a number that is not finite.");
  }
  return FeedbackEncoder(values, rows, columns, format, scale, factor).encode();
}

}  // namespace espalier::quantization
