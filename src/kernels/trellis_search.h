#pragma once

#include <cstdint>
#include <vector>

#include "kernels/trellis.h"

namespace espalier::kernels {

/// One step of a search.
struct TrellisStep {
  const float* table;     // [2^L]
  const float* previous;  // [columns]
  int columns;
  float x;
  float weight;
  float* best;  // [columns]
};

/// best[j] = the largest of previous[s >> K] + w v(s) (2 x - v(s)) over the states s = j + m
/// columns, where w is 1 for `step`; `choice` is the m that it comes from, the highest of equals.
struct TrellisSearchCpu {
  // For states of 12 and 16 bits, and for 2, 3 and 4 bits a weight.
  void (*step[2][3])(const TrellisStep& step);
  void (*weighted_step[2][3])(const TrellisStep& step);
  int (*choice[3])(const TrellisStep& step, int column);
};

/// Finds the trellis block nearest to 256 numbers, by two passes of the Viterbi algorithm over all
/// states: the first, on the numbers turned by half a block, finds where a closed path begins; the
/// second finds the best path that begins and ends there (QTIP, arXiv 2406.11235, section 3.2). Of
/// equal paths the one of higher states wins. One object per thread; it keeps its memory: a float
/// for each of the 2^(L - K) columns and 256 steps.
///
/// What limits it: 2 * 2^L state updates per weight, each a subtraction, a multiplication-addition
/// and a maximum. Which state a maximum came from is found again along the one path that is taken.
class TrellisSearch {
 public:
  explicit TrellisSearch(const TrellisFormat& format);

  /// Codes x [256] as `trellis_block_words` words; `values` [256] receives the numbers they mean.
  /// `weights` [256], null for ones, is how much the square error of each number counts.
  void encode(const float* x, const float* weights, std::uint32_t* words, float* values);

  /// Root of the mean square of the numbers of all states.
  double root_mean_square() const { return root_mean_square_; }
  /// The largest of them.
  float largest_value() const { return largest_value_; }

 private:
  /// A pass over x from the scores of the states before it, `scores(0)`; fills those after each
  /// number.
  void pass(const float* x, const float* weights);
  /// The states, from `first` on, of the path that ends in a state with these low bits.
  void trace(const float* x, const float* weights, int first, int low_bits, int* states);
  int best_end(const float* x, const float* weights);
  TrellisStep step(const float* x, const float* weights, int index);
  float* table() { return table_.front().values; }
  float* scores(int index) {
    return scores_.front().values + static_cast<std::size_t>(index) * stride_;
  }

  /// Floats that begin a cache line, so that no vector lies in two.
  struct alignas(64) Line {
    float values[16];
  };

  TrellisFormat format_;
  int columns_;  // states that share a successor's group: 2^(L - K)
  int stride_;
  std::vector<Line> table_;  // [2^L], the numbers of all states
  double root_mean_square_;
  float largest_value_;
  /// [257, columns and some more], the best score of the states with these low bits.
  std::vector<Line> scores_;
};

const TrellisSearchCpu& trellis_search_cpu_scalar();
const TrellisSearchCpu& trellis_search_cpu_avx2();
const TrellisSearchCpu& trellis_search_cpu_avx512();

}  // namespace espalier::kernels
