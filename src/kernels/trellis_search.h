#pragma once

#include <cstdint>
#include <vector>

#include "kernels/trellis.h"

namespace espalier::kernels {

/// Finds the trellis block nearest to 256 numbers, by two passes of the Viterbi algorithm over all
/// states: the first, on the numbers turned by half a block, finds where a closed path begins; the
/// second finds the best path that begins and ends there (QTIP, arXiv 2406.11235, section 3.2). Of
/// equal paths the one of higher states wins. One object per thread; it keeps its memory.
///
/// What limits it: 2 * 2^L state updates per weight, each a permutation, a subtraction, a
/// multiplication-addition, a comparison, a selection and a maximum.
class TrellisSearch {
 public:
  explicit TrellisSearch(const TrellisFormat& format);

  /// Codes x [256] as `trellis_block_words` words; `values` [256] receives the numbers they mean.
  void encode(const float* x, std::uint32_t* words, float* values);

  /// Root of the mean square of the numbers of all states.
  double root_mean_square() const { return root_mean_square_; }

 private:
  /// Runs over x from the scores `best_` of the states before it, filling `choices_`.
  void pass(const float* x);
  /// The states of the path that ends in a state with these low bits.
  void trace(int low_bits, int* states) const;
  int best_end() const;

  TrellisFormat format_;
  int columns_;  // states that share a successor's group: 2^(L - K)
  std::vector<float> table_;
  double root_mean_square_;
  std::vector<float> best_;  // [columns], the best score of the states with these low bits
  std::vector<float> next_;
  std::vector<std::int8_t> choices_;  // [256, columns], the high bits of that state
};

/// One step of a search.
struct TrellisStep {
  const float* table;     // [2^L]
  const float* previous;  // [columns], 16 more can be read
  int columns;
  float x;
  float* best;           // [columns]
  std::int8_t* choices;  // [columns]
};

/// best[j] = the largest of previous[s >> K] + 2 x v(s) - v(s)^2 over the states s = j + m columns,
/// and choices[j] its m.
struct TrellisSearchCpu {
  void (*step[3])(const TrellisStep& step);  // for 2, 3 and 4 bits
};

const TrellisSearchCpu& trellis_search_cpu_scalar();
const TrellisSearchCpu& trellis_search_cpu_avx2();
const TrellisSearchCpu& trellis_search_cpu_avx512();

}  // namespace espalier::kernels
