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
/// Floats of a cache line.
constexpr int line_floats = 16;

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
      // Steps in the same places of the cache would drive each other out.
      stride_(columns_ + line_floats),
      table_((std::size_t{1} << format.state_bits) / line_floats),
      scores_(static_cast<std::size_t>(stride_ / line_floats) * (trellis_block_weights + 1)) {
  const std::vector<float> values = trellis_values(format);
  std::ranges::copy(values, table());
  largest_value_ = *std::ranges::max_element(values);
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value) * value;
  }
  root_mean_square_ = std::sqrt(sum / static_cast<double>(values.size()));
}

TrellisStep TrellisSearch::step(const float* x, const float* weights, int index) {
  return {.table = table(),
          .previous = scores(index),
          .columns = columns_,
          .x = x[index],
          .weight = weights == nullptr ? 1.0F : weights[index],
          .best = scores(index + 1)};
}

void TrellisSearch::pass(const float* x, const float* weights) {
  const TrellisSearchCpu& cpu = search_cpu();
  const auto& steps = weights == nullptr ? cpu.step : cpu.weighted_step;
  const auto run = steps[format_.state_bits == 16 ? 1 : 0][format_.bits - 2];
  for (int i = 0; i < trellis_block_weights; ++i) {
    run(step(x, weights, i));
  }
}

void TrellisSearch::trace(const float* x, const float* weights, int first, int low_bits,
                          int* states) {
  const auto choice = search_cpu().choice[format_.bits - 2];
  for (int i = trellis_block_weights - 1; i >= first; --i) {
    states[i] = low_bits + choice(step(x, weights, i), low_bits) * columns_;
    low_bits = states[i] >> format_.bits;
  }
}

int TrellisSearch::best_end(const float* x, const float* weights) {
  const auto choice = search_cpu().choice[format_.bits - 2];
  const TrellisStep last = step(x, weights, trellis_block_weights - 1);
  const float* score = scores(trellis_block_weights);
  const float best = *std::max_element(score, score + columns_);
  int end = 0;
  int state = -1;
  for (int column = 0; column < columns_; ++column) {
    if (score[column] != best) continue;
    // Of equal scores the higher state.
    const int candidate = column + choice(last, column) * columns_;
    if (candidate > state) {
      state = candidate;
      end = column;
    }
  }
  return end;
}

void TrellisSearch::encode(const float* x, const float* weights, std::uint32_t* words,
                           float* values) {
  constexpr int half = trellis_block_weights / 2;
  const auto turn = [](const float* from, float* to) {
    std::copy(from + half, from + trellis_block_weights, to);
    std::copy(from, from + half, to + half);
  };
  float turned[trellis_block_weights];
  float turned_weights[trellis_block_weights];
  turn(x, turned);
  if (weights != nullptr) turn(weights, turned_weights);
  const float* own_weights = weights == nullptr ? nullptr : turned_weights;
  std::fill_n(scores(0), columns_, 0.0F);
  pass(turned, own_weights);
  int states[trellis_block_weights];
  trace(turned, own_weights, half, best_end(turned, own_weights), states);
  const int overlap = states[half] >> format_.bits;

  std::fill_n(scores(0), columns_, excluded);
  scores(0)[overlap] = 0.0F;
  pass(x, weights);
  trace(x, weights, 0, overlap, states);
  pack(states, format_.bits, words);
  for (int i = 0; i < trellis_block_weights; ++i) {
    values[i] = table()[states[i]];
  }
}

}  // namespace espalier::kernels
