#include "kernels/head_linear.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/packed_weights.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;
using arrays::StorageType;

std::vector<float> to_floats(const mx::array& array) {
  auto plain = mx::contiguous(mx::astype(array, mx::float32));
  mx::eval(plain);
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

mx::array random_rows(int rows, int columns) {
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(rows) * columns);
  for (float& value : values) value = normal(generator);
  return mx::array(values.data(), {rows, columns});
}

std::vector<PackedMatrix> random_heads(StorageType type, int heads, int rows, int columns) {
  std::vector<PackedMatrix> matrices;
  for (int head = 0; head < heads; ++head) {
    matrices.push_back(
        pack(tests::random_weight(type, rows, columns, static_cast<unsigned>(head)).view));
  }
  return matrices;
}

TEST(HeadLinear, AgreesWithPlainOperations) {
  for (const StorageType type : {StorageType::f32, StorageType::f16, StorageType::q8_0}) {
    for (const int rows : {1, 3, 70}) {
      // The last head's inputs end where the row does, or before.
      const auto heads = random_heads(type, 3, 21, 32);
      const mx::array x = random_rows(rows, 3 * 40);
      const auto actual = to_floats(head_linear(x, 40, heads));
      const auto expected = to_floats(head_linear_ops(x, 40, heads));
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t i = 0; i < actual.size(); ++i) {
        ASSERT_NEAR(actual[i], expected[i], 1e-3F) << i;
      }
    }
  }
}

TEST(HeadLinear, RowsKeepTheirBits) {
  const auto heads = random_heads(StorageType::f16, 2, 16, 24);
  const mx::array x = random_rows(67, 48);
  const auto whole = to_floats(head_linear(x, 24, heads));
  for (const int row : {0, 1, 63, 64, 66}) {
    const auto alone = to_floats(head_linear(mx::slice(x, {row, 0}, {row + 1, 48}), 24, heads));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + row * 32)) << row;
  }
}

TEST(HeadLinear, RefusesMatricesBeyondTheRow) {
  const auto heads = random_heads(StorageType::f32, 2, 8, 24);
  EXPECT_THROW(head_linear(random_rows(2, 40), 24, heads), std::invalid_argument);
}

}  // namespace
}  // namespace espalier::kernels
