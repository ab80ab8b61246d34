#include "conversion/allocation.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier::conversion {
namespace {

using testing::ElementsAre;
using testing::Pair;

/// Damage that falls with the square of the step, as uniform quantization's does.
Choice layer(const char* name, std::int64_t values, double sensitivity) {
  Choice choice{name, values, {}};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    choice.damage[bits] = sensitivity * std::pow(4.0, -bits);
  }
  return choice;
}

double mean_bits(const std::vector<Choice>& choices, const std::map<std::string, double>& bits) {
  double sum = 0;
  double values = 0;
  for (const Choice& choice : choices) {
    sum += static_cast<double>(choice.values) * bits.at(choice.layer);
    values += static_cast<double>(choice.values);
  }
  return sum / values;
}

TEST(Allocation, GivesMoreBitsWhereTheyMatter) {
  const std::vector<Choice> choices = {layer("a", 100, 1), layer("b", 100, 1),
                                       layer("c", 100, 100)};
  EXPECT_THAT(allocate(choices, 0.5, 4.5), ElementsAre(Pair("a", 3), Pair("b", 3), Pair("c", 6)));
}

TEST(Allocation, EqualLayersGetEqualBits) {
  const std::vector<Choice> choices = {layer("a", 64, 2), layer("b", 64, 2)};
  EXPECT_THAT(allocate(choices, 0, 4), ElementsAre(Pair("a", 4), Pair("b", 4)));
}

TEST(Allocation, StaysWithinTheBudgetAndNearIt) {
  std::vector<Choice> choices;
  for (int i = 0; i < 30; ++i) {
    choices.push_back(
        layer(("layer" + std::to_string(i)).c_str(), 100 + 10 * i, std::exp(0.5 * (i % 7))));
  }
  for (const double budget : {2.5, 3.3, 4.1, 5.5, 7.9}) {
    const double mean = mean_bits(choices, allocate(choices, 0.25, budget)) + 0.25;
    EXPECT_LE(mean, budget + 1e-9);
    EXPECT_GT(mean, budget - 0.1);
  }
}

TEST(Allocation, TooSmallABudgetGivesTheFewestBits) {
  const std::vector<Choice> choices = {layer("a", 64, 2)};
  EXPECT_THAT(allocate(choices, 0.5, 1), ElementsAre(Pair("a", 2)));
}

}  // namespace
}  // namespace espalier::conversion
