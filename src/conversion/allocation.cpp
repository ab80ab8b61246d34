#include "conversion/allocation.h"

#include <optional>

namespace espalier::conversion {
namespace {

/// Widening one layer to some bits.
struct Step {
  std::size_t layer;
  double bits;
  double cost;      // bits over all its values
  double per_cost;  // damage that goes away for each of them
};

/// The best step from where the layers stand, among those that fit into `left` bits.
std::optional<Step> best_step(const std::vector<Choice>& choices, const std::vector<double>& bits,
                              double left) {
  std::optional<Step> best;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    const double damage = choice.damage.at(bits[i]);
    for (auto wider = choice.damage.upper_bound(bits[i]); wider != choice.damage.end(); ++wider) {
      const double cost = static_cast<double>(choice.values) * (wider->first - bits[i]);
      const double per_cost = (damage - wider->second) / cost;
      if (cost > left || (best && per_cost <= best->per_cost)) continue;
      best = Step{i, wider->first, cost, per_cost};
    }
  }
  return best;
}

}  // namespace

std::map<std::string, double> allocate(const std::vector<Choice>& choices, double overhead,
                                       double budget) {
  std::vector<double> bits;
  double left = 0;
  for (const Choice& choice : choices) {
    bits.push_back(choice.damage.begin()->first);
    left += static_cast<double>(choice.values) * (budget - overhead - bits.back());
  }
  while (const auto step = best_step(choices, bits, left)) {
    bits[step->layer] = step->bits;
    left -= step->cost;
  }
  std::map<std::string, double> result;
  for (std::size_t i = 0; i < choices.size(); ++i) result[choices[i].layer] = bits[i];
  return result;
}

}  // namespace espalier::conversion
