#include "kernels/trellis_search.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu_features.h"
#include "kernels/lanes_scalar.h"
#include "kernels/trellis_search_kernel.h"

namespace espalier::kernels {
namespace {

/// The score of states that a path must not use.
constexpr float excluded = -1e30F;
/// Floats past the last column that a step may read.
constexpr int slack = 16;

struct ScalarSearch {
  using Lanes = ScalarLanes;
  template <int>
  static float spread(const float* p) {
    return *p;
  }
};

const TrellisSearchCpu& search_cpu() {
  switch (instruction_set()) {
    case InstructionSet::avx512:
      return trellis_search_cpu_avx512();
    case InstructionSet::avx2:
      return trellis_search_cpu_avx2();
    default:
      return trellis_search_cpu_scalar();
  }
}

void pack(const int* states, int bits, std::uint32_t* words) {
  std::fill(words, words + trellis_block_words(bits), 0U);
  for (int i = 0; i < trellis_block_weights; ++i) {
    const int bit = (trellis_block_weights - 1 - i) * bits;
    const auto symbol = static_cast<std::uint64_t>(states[i] & ((1 << bits) - 1)) << (bit & 31);
    words[bit >> 5] |= static_cast<std::uint32_t>(symbol);
    if (symbol >> 32 != 0) {
      words[(bit >> 5) + 1] |= static_cast<std::uint32_t>(symbol >> 32);
    }
  }
}

}  // namespace

const TrellisSearchCpu& trellis_search_cpu_scalar() {
  static constexpr TrellisSearchCpu kernels = TrellisSearchKernel<ScalarSearch>::table();
  return kernels;
}

TrellisSearch::TrellisSearch(const TrellisFormat& format)
    : format_(format),
      columns_(1 << (format.state_bits - format.bits)),
      table_(trellis_values(format)),
      best_(columns_ + slack),
      next_(columns_ + slack),
      choices_(static_cast<std::size_t>(columns_) * trellis_block_weights) {
  double sum = 0;
  for (const float value : table_) {
    sum += static_cast<double>(value) * value;
  }
  root_mean_square_ = std::sqrt(sum / static_cast<double>(table_.size()));
}

void TrellisSearch::pass(const float* x) {
  const auto step = search_cpu().step[format_.bits - 2];
  for (int i = 0; i < trellis_block_weights; ++i) {
    step({.table = table_.data(),
          .previous = best_.data(),
          .columns = columns_,
          .x = x[i],
          .best = next_.data(),
          .choices = choices_.data() + static_cast<std::size_t>(i) * columns_});
    best_.swap(next_);
  }
}

void TrellisSearch::trace(int low_bits, int* states) const {
  for (int i = trellis_block_weights - 1; i >= 0; --i) {
    const int high = choices_[static_cast<std::size_t>(i) * columns_ + low_bits];
    states[i] = low_bits + high * columns_;
    low_bits = states[i] >> format_.bits;
  }
}

int TrellisSearch::best_end() const {
  const std::int8_t* high =
      choices_.data() + static_cast<std::size_t>(trellis_block_weights - 1) * columns_;
  int best = 0;
  for (int column = 1; column < columns_; ++column) {
    // Of equal scores the higher state, whose high bits count first.
    if (best_[column] > best_[best] ||
        (best_[column] == best_[best] && high[column] >= high[best])) {
      best = column;
    }
  }
  return best;
}

void TrellisSearch::encode(const float* x, std::uint32_t* words, float* values) {
  constexpr int half = trellis_block_weights / 2;
  float turned[trellis_block_weights];
  std::copy(x + half, x + trellis_block_weights, turned);
  std::copy(x, x + half, turned + half);
  std::fill(best_.begin(), best_.end(), 0.0F);
  pass(turned);
  int states[trellis_block_weights];
  trace(best_end(), states);
  const int overlap = states[half] >> format_.bits;

  std::fill(best_.begin(), best_.end(), excluded);
  best_[overlap] = 0.0F;
  pass(x);
  trace(overlap, states);
  pack(states, format_.bits, words);
  for (int i = 0; i < trellis_block_weights; ++i) {
    values[i] = table_[states[i]];
  }
}

}  // namespace espalier::kernels
