#include "generation/kv_budget.h"

#include <gtest/gtest.h>

namespace espalier::generation {
namespace {

TEST(KvBudget, HoldsAllRunningRequestsWhereMemoryAllows) {
  const KvBudget budget = plan_kv_budget(1'000'000'000, 1000, 32, 8, 2048);
  EXPECT_EQ(budget.kv_blocks, 8 * 64);
  EXPECT_EQ(budget.context, 2048);
}

TEST(KvBudget, RoundsARequestUpToWholeKvBlocks) {
  EXPECT_EQ(plan_kv_budget(1'000'000'000, 1000, 32, 2, 33).kv_blocks, 4);
}

TEST(KvBudget, IsLimitedByMemory) {
  // 100 KV blocks of 32,000 bytes and a bit.
  const KvBudget budget = plan_kv_budget(3'231'999, 1000, 32, 8, 2048);
  EXPECT_EQ(budget.kv_blocks, 100);
  EXPECT_EQ(budget.context, 2048);
}

TEST(KvBudget, ShrinksTheContextWhenNotOneFits) {
  const KvBudget budget = plan_kv_budget(320'000, 1000, 32, 8, 2048);
  EXPECT_EQ(budget.kv_blocks, 10);
  EXPECT_EQ(budget.context, 320);
  EXPECT_EQ(plan_kv_budget(31'999, 1000, 32, 8, 2048).context, 0);
}

TEST(KvBudget, SurvivesHugeNumbers) {
  const KvBudget budget = plan_kv_budget(UINT64_MAX, 1, 32, 1'000'000, 2'000'000'000);
  EXPECT_GT(budget.kv_blocks, 1'000'000'000);
  EXPECT_EQ(budget.context, 2'000'000'000);
}

}  // namespace
}  // namespace espalier::generation
