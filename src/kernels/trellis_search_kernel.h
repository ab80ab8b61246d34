#pragma once

#include "kernels/trellis_search.h"

namespace espalier::kernels {

/// `Set` has the lanes and `spread<bits>(p)`: p[lane >> bits] in each lane.
template <class Set>
class TrellisSearchKernel {
  using Lanes = typename Set::Lanes;
  using Float = typename Lanes::Float;

 public:
  static constexpr TrellisSearchCpu table() { return {.step = {step<2>, step<3>, step<4>}}; }

 private:
  template <int bits>
  static void step(const TrellisStep& step) {
    const Float twice = Lanes::set(2 * step.x);
    for (int column = 0; column < step.columns; column += Lanes::width) {
      Float best = score<bits>(step, twice, column);
      Float choice = Lanes::zero();
      for (int m = 1; m < 1 << bits; ++m) {
        const Float candidate = score<bits>(step, twice, column + m * step.columns);
        choice = Lanes::select_greater(best, candidate, choice, Lanes::set(static_cast<float>(m)));
        best = Lanes::max(best, candidate);
      }
      Lanes::store(step.best + column, best);
      Lanes::store_bytes(step.choices + column, Lanes::to_int(choice));
    }
  }

  template <int bits>
  static Float score(const TrellisStep& step, Float twice, int state) {
    const Float value = Lanes::load(step.table + state);
    return Lanes::fma(value, Lanes::sub(twice, value),
                      Set::template spread<bits>(step.previous + (state >> bits)));
  }
};

}  // namespace espalier::kernels
