#include "kernels/norm.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "kernels/packed_weights.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;
using tests::bytes_of;
using tests::ForcedInstructionSet;

mx::array random(mx::Shape shape, mx::Dtype dtype, int seed) {
  return mx::astype(mx::random::normal(std::move(shape), mx::float32, mx::random::key(seed)),
                    dtype);
}

RmsNorm norm(int columns) { return {random({columns}, mx::float32, 1), 1e-5F}; }

void expect_near(const mx::array& actual, const mx::array& expected, float tolerance) {
  ASSERT_EQ(actual.dtype(), expected.dtype());
  const auto difference = mx::max(
      mx::abs(mx::subtract(mx::astype(actual, mx::float32), mx::astype(expected, mx::float32))));
  EXPECT_LE(mx::array(difference).item<float>(), tolerance);
}

TEST(Norm, AgreesWithPlainOperations) {
  for (const auto set : tests::supported_sets()) {
    const ForcedInstructionSet forced(set);
    for (const int columns : {1, 7, 16, 100, 576, 1000}) {
      for (const auto& [dtype, tolerance] :
           {std::pair(mx::float32, 1e-5F), std::pair(mx::float16, 4e-3F),
            std::pair(mx::bfloat16, 3.2e-2F)}) {
        for (const int rows : {1, 2, 17, 33}) {
          SCOPED_TRACE(std::to_string(columns) + " columns, " + std::to_string(rows) + " rows");
          const auto x = random({rows, columns}, dtype, 2);
          const auto residual = random({rows, columns}, dtype, 3);
          expect_near(rms_norm(x, norm(columns)), rms_norm_ops(x, norm(columns)), tolerance);
          expect_near(rms_norm(x, norm(columns), residual),
                      rms_norm_ops(x, norm(columns), residual), tolerance);
        }
      }
    }
  }
}

TEST(Norm, TakesStridedRows) {
  const auto x = mx::transpose(random({40, 9}, mx::float32, 2));
  expect_near(rms_norm(x, norm(40)), rms_norm_ops(x, norm(40)), 1e-5F);
}

TEST(Norm, RowsKeepTheirBits) {
  constexpr int rows = 200;
  constexpr int columns = 577;
  const auto x = random({rows, columns}, mx::float32, 2);
  const auto residual = random({rows, columns}, mx::float32, 3);
  const auto expected = bytes_of(rms_norm(x, norm(columns), residual));
  const std::size_t row_bytes = expected.size() / rows;
  for (const auto set : tests::supported_sets()) {
    const ForcedInstructionSet forced(set);
    for (const int threads : {1, 2, 4}) {
      base::set_compute_threads(threads);
      EXPECT_EQ(bytes_of(rms_norm(x, norm(columns), residual)), expected);
      for (const int row : {0, 5, rows - 1}) {
        const auto alone =
            bytes_of(rms_norm(mx::slice(x, {row, 0}, {row + 1, columns}), norm(columns),
                              mx::slice(residual, {row, 0}, {row + 1, columns})));
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), expected.begin() + row * row_bytes));
      }
    }
  }
  base::set_compute_threads(base::default_compute_threads());
}

TEST(Norm, RefusesShapesThatDoNotFit) {
  const auto x = random({2, 8}, mx::float32, 2);
  EXPECT_THROW(rms_norm(x, norm(7)), std::invalid_argument);
  EXPECT_THROW(rms_norm(x, norm(8), random({1, 8}, mx::float32, 3)), std::invalid_argument);
  EXPECT_THROW(rms_norm(mx::astype(x, mx::int32), norm(8)), std::invalid_argument);
}

}  // namespace
}  // namespace espalier::kernels
