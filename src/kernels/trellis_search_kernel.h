#pragma once

#include "kernels/trellis_search.h"

namespace espalier::kernels {

/// `Set` has the lanes and `spread<bits>(p)`: p[lane >> bits] in each lane.
template <class Set>
class TrellisSearchKernel {
  using Lanes = typename Set::Lanes;
  using Float = typename Lanes::Float;

 public:
  static constexpr TrellisSearchCpu table() {
    return {.step = {step<2, false>, step<3, false>, step<4, false>},
            .weighted_step = {step<2, true>, step<3, true>, step<4, true>},
            .choice = {choice<2>, choice<3>, choice<4>}};
  }

 private:
  template <int bits, bool weighted>
  static void step(const TrellisStep& step) {
    const Float twice = Lanes::set(2 * step.weight * step.x);
    const Float weight = Lanes::set(step.weight);
    for (int column = 0; column < step.columns; column += Lanes::width) {
      Float best = score<bits, weighted>(step, twice, weight, column);
      for (int m = 1; m < 1 << bits; ++m) {
        best =
            Lanes::max(best, score<bits, weighted>(step, twice, weight, column + m * step.columns));
      }
      Lanes::store(step.best + column, best);
    }
  }

  template <int bits, bool weighted>
  static Float score(const TrellisStep& step, Float twice, Float weight, int state) {
    const Float value = Lanes::load(step.table + state);
    // With a weight of 1 both are rounded to the same number.
    const Float slope = weighted ? Lanes::fnma(weight, value, twice) : Lanes::sub(twice, value);
    return Lanes::fma(value, slope, Set::template spread<bits>(step.previous + (state >> bits)));
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
