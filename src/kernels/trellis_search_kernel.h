#pragma once

#include <cstddef>

#include "kernels/trellis_search.h"

namespace espalier::kernels {

/// `Set` has the lanes and `spread<bits>(p)`: p[lane >> bits] in each lane.
template <class Set>
class TrellisSearchKernel {
  using Lanes = typename Set::Lanes;
  using Float = typename Lanes::Float;

 public:
  static constexpr TrellisSearchCpu table() {
    return {.step = {{step<2, 12, false>, step<3, 12, false>, step<4, 12, false>},
                     {step<2, 16, false>, step<3, 16, false>, step<4, 16, false>}},
            .weighted_step = {{step<2, 12, true>, step<3, 12, true>, step<4, 12, true>},
                              {step<2, 16, true>, step<3, 16, true>, step<4, 16, true>}},
            .choice = {choice<2>, choice<3>, choice<4>}};
  }

 private:
  template <int bits, int state_bits, bool weighted>
  static void step(const TrellisStep& step) {
    // Constant, so that the addresses of all predecessors are two with constants added.
    constexpr std::size_t columns = std::size_t{1} << (state_bits - bits);
    const Float twice = Lanes::set(2 * step.weight * step.x);
    const Float weight = Lanes::set(step.weight);
    const float* table = step.table;
    const float* previous = step.previous;
    float* result = step.best;
    for (std::size_t column = 0; column < columns; column += Lanes::width) {
      const float* value = table + column;
      const float* before = previous + (column >> bits);
      Float best = score<bits, weighted>(value, before, twice, weight);
#pragma GCC unroll 16
      for (std::size_t m = 1; m < std::size_t{1} << bits; ++m) {
        best =
            Lanes::max(best, score<bits, weighted>(value + m * columns,
                                                   before + (m * columns >> bits), twice, weight));
      }
      Lanes::store(result + column, best);
    }
  }

  template <int bits, bool weighted>
  static Float score(const float* table, const float* previous, Float twice, Float weight) {
    const Float value = Lanes::load(table);
    // With a weight of 1 both are rounded to the same number.
    const Float slope = weighted ? Lanes::fnma(weight, value, twice) : Lanes::sub(twice, value);
    return Lanes::fma(value, slope, Set::template spread<bits>(previous));
  }

  /// The same sums as in `score`, so the largest is found by being equal.
  template <int bits>
  static int choice(const TrellisStep& step, int column) {
    const float twice = 2 * step.weight * step.x;
    int best = 0;
    float best_score = 0;
    for (int m = 0; m < 1 << bits; ++m) {
      const int state = column + m * step.columns;
      const float value = step.table[state];
      const float score = __builtin_fmaf(value, __builtin_fmaf(-step.weight, value, twice),
                                         step.previous[state >> bits]);
      if (m == 0 || score >= best_score) {
        best = m;
        best_score = score;
      }
    }
    return best;
  }
};

}  // namespace espalier::kernels
