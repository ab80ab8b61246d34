#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace espalier::conversion {

/// One layer that may be stored with several widths.
struct Choice {
  std::string layer;
  std::int64_t values = 0;
  /// What storing it with so many bits does to the model's answers; falls as bits grow.
  std::map<double, double> damage;
};

/// The bits of each layer that keep the sum of the damages small while the mean of
/// `bits + overhead` over all values stays at most `budget` bits: from the fewest bits on, the
/// layer whose damage falls most for each bit added is widened, until nothing more fits. Layers
/// whose fewest bits exceed the budget keep those.
std::map<std::string, double> allocate(const std::vector<Choice>& choices, double overhead,
                                       double budget);

}  // namespace espalier::conversion
