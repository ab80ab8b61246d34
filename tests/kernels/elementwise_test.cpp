#include "kernels/elementwise.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_features.h"
#include "kernels/packed_weights.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;
using Kind = ElementFunction::Kind;
using tests::supported_sets;

mx::array random(mx::Shape shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::size_t size = 1;
  for (const int extent : shape) size *= extent;
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  return mx::array(values.data(), std::move(shape));
}

std::vector<float> to_floats(const mx::array& array) {
  auto plain = mx::contiguous(mx::astype(array, mx::float32));
  mx::eval(plain);
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

const std::vector<ElementFunction> functions = {
    {.kind = Kind::silu},
    {.kind = Kind::gelu_tanh},
    {.kind = Kind::gelu_erf},
    {.kind = Kind::gelu_quick},
    {.kind = Kind::relu},
    {.kind = Kind::relu_squared},
    {.kind = Kind::sigmoid},
    {.kind = Kind::tanh},
    {.kind = Kind::soft_cap, .constants = {5.0F}},
    {.kind = Kind::xielu, .constants = {0.8F, 0.9F, 0.5F, -1e-6F}},
};

class Elementwise : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override { force_instruction_set(GetParam()); }
  void TearDown() override { force_instruction_set(std::nullopt); }

  static void compare(const mx::array& x, const ElementFunction& function,
                      const std::optional<mx::array>& factor) {
    const auto actual = to_floats(elementwise(x, function, factor));
    const auto expected = to_floats(elementwise_ops(x, function, factor));
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 1e-5F + 1e-5F * std::abs(expected[i]))
          << static_cast<int>(function.kind) << " at " << i;
    }
  }
};

TEST_P(Elementwise, AgreesWithPlainOperations) {
  for (const ElementFunction& function : functions) {
    for (const int columns : {1, 7, 16, 33, 100}) {
      const mx::array x = random({5, columns}, 1);
      compare(x, function, std::nullopt);
      compare(x, function, random({5, columns}, 2));
      compare(x, function, random({5, 1}, 3));
      compare(random({5, 1}, 4), function, x);
    }
  }
  const ElementFunction clamped{.kind = Kind::clamped_swish, .constants = {1.702F, 2.0F}};
  compare(random({5, 40}, 1), clamped, random({5, 40}, 2));
}

/// An element's bits depend on neither its place nor how many there are.
TEST_P(Elementwise, ElementsKeepTheirBits) {
  const mx::array x = random({3, 50}, 1);
  const mx::array factor = random({3, 50}, 2);
  for (const ElementFunction& function : functions) {
    const auto whole = to_floats(elementwise(x, function, factor));
    const auto flat =
        to_floats(elementwise(mx::reshape(x, {150, 1}), function, mx::reshape(factor, {150, 1})));
    EXPECT_EQ(whole, flat) << static_cast<int>(function.kind);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Elementwise, testing::ValuesIn(supported_sets()),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace espalier::kernels
