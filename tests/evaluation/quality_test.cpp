#include "evaluation/quality.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "evaluation/bigram_model.h"

namespace espalier::evaluation {
namespace {

using tests::BigramModel;

TEST(Quality, IsTheMeanDivergenceOfAllPositions) {
  BigramModel exact({{0.5, 0.5}, {0.25, 0.75}});
  BigramModel other({{0.5, 0.5}, {0.75, 0.25}});
  const Quality quality = compare(exact, other, {0, 1, 0, 0, 1}, {.context = 2, .rows = 2});
  EXPECT_EQ(quality.positions, 4);  // 0 1, 0 0
  const double after_one = 0.25 * std::log(0.25 / 0.75) + 0.75 * std::log(0.75 / 0.25);
  EXPECT_NEAR(quality.divergence, after_one / 4, 1e-6);
  EXPECT_NEAR(quality.largest, after_one, 1e-6);
  EXPECT_DOUBLE_EQ(quality.same_top, 0.75);
}

TEST(Quality, RefusesTooShortTextsAndForeignTokens) {
  BigramModel model({{0.5, 0.5}, {0.25, 0.75}});
  EXPECT_THROW(compare(model, model, {0, 1}, {.context = 3}), base::UsageError);
  EXPECT_THROW(compare(model, model, {0, 2}, {.context = 2}), base::UsageError);
  EXPECT_THROW(compare(model, model, {0, 1}, {.context = 0}), base::UsageError);
}

}  // namespace
}  // namespace espalier::evaluation
