#include "state/kv_pool.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace espalier::state {
namespace {

namespace mx = mlx::core;

const std::vector<KvLayerShape> shapes = {{.kv_heads = 3, .head_dim = 64},
                                          {.kv_heads = 1, .head_dim = 256}};

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(KvPool, GivesEachLayerItsShape) {
  KvPool pool(shapes, 5, mx::bfloat16);
  EXPECT_EQ(pool.layer(0).keys.shape(), (mx::Shape{5, 3, 64, 32}));
  EXPECT_EQ(pool.layer(0).values.shape(), (mx::Shape{5, 3, 32, 64}));
  EXPECT_EQ(pool.layer(1).keys.shape(), (mx::Shape{5, 1, 256, 32}));
  EXPECT_EQ(pool.layer(1).values.dtype(), mx::bfloat16);
  EXPECT_TRUE(pool.layer(1).values.is_donatable());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.layer(1).keys.data<void>()) % 64, 0U);
  EXPECT_THROW(pool.layer(2), std::out_of_range);
}

TEST(KvPool, CountsBytesPerToken) {
  EXPECT_EQ(KvPool::bytes_per_token(shapes, mx::float16), 2U * 2 * (3 * 64 + 256));
  EXPECT_EQ(KvPool::bytes_per_token(shapes, mx::float32), 4U * 2 * (3 * 64 + 256));
}

TEST(KvPool, ReservesMemoryWithoutTouchingIt) {
  const std::size_t before = resident_bytes();
  // 1.8 GB.
  KvPool pool(shapes, 32768, mx::float16);
  EXPECT_LT(resident_bytes(), before + (std::size_t{64} << 20));
}

TEST(KvPool, HandsOutEachBlockOnce) {
  KvPool pool(shapes, 4, mx::float16);
  std::set<int> blocks;
  for (int i = 0; i < 4; ++i) blocks.insert(pool.allocate());
  EXPECT_EQ(blocks, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(pool.free_blocks(), 0);
  EXPECT_EQ(pool.blocks(), 4);
  EXPECT_THROW(pool.allocate(), std::logic_error);
  pool.release(2);
  EXPECT_EQ(pool.allocate(), 2);
}

TEST(KvPool, CountsReferences) {
  KvPool pool(shapes, 2, mx::float16);
  const int block = pool.allocate();
  pool.retain(block);
  pool.release(block);
  EXPECT_EQ(pool.free_blocks(), 1);
  pool.release(block);
  EXPECT_EQ(pool.free_blocks(), 2);
  EXPECT_THROW(pool.release(block), std::logic_error);
  EXPECT_THROW(pool.retain(block), std::logic_error);
}

TEST(SequenceState, TakesBlocksAsItGrows) {
  KvPool pool(shapes, 8, mx::float16);
  SequenceState state(pool);
  EXPECT_EQ(state.length(), 0);
  state.extend(32);
  EXPECT_EQ(state.block_table().size(), 1U);
  state.advance(32);
  state.extend(1);
  state.advance(1);
  EXPECT_EQ(state.length(), 33);
  EXPECT_EQ(state.block_table().size(), 2U);
  state.extend(31);
  EXPECT_EQ(state.block_table().size(), 2U);
  EXPECT_EQ(pool.free_blocks(), 6);
}

TEST(SequenceState, GivesItsBlocksBackOnce) {
  KvPool pool(shapes, 8, mx::float16);
  {
    SequenceState first(pool);
    first.extend(100);
    first.advance(100);
    SequenceState second(std::move(first));
    EXPECT_EQ(second.length(), 100);
    EXPECT_EQ(pool.free_blocks(), 4);
    SequenceState third(pool);
    third.extend(1);
    third = std::move(second);
    EXPECT_EQ(third.block_table().size(), 4U);
    EXPECT_EQ(pool.free_blocks(), 4);
  }
  EXPECT_EQ(pool.free_blocks(), 8);
}

TEST(KvReach, SaysWhichKeyIsSeenFirst) {
  EXPECT_EQ(KvReach{}.first_seen(100), 0);
  EXPECT_EQ(KvReach{.window = 8}.first_seen(3), 0);
  EXPECT_EQ(KvReach{.window = 8}.first_seen(100), 93);
  EXPECT_EQ(KvReach{.chunk = 32}.first_seen(31), 0);
  EXPECT_EQ(KvReach{.chunk = 32}.first_seen(95), 64);
  EXPECT_EQ((KvReach{.window = 8, .chunk = 32}).first_seen(95), 88);
}

std::vector<KvLayerShape> full_and_sliding(int window) {
  return {{.kv_heads = 1, .head_dim = 64},
          {.kv_heads = 1, .head_dim = 64, .reach = {.window = window}},
          {.kv_heads = 2, .head_dim = 64},
          {.kv_heads = 2, .head_dim = 64, .reach = {.window = window}}};
}

TEST(KvPool, GroupsLayersByReach) {
  KvPool pool(full_and_sliding(40), 8, mx::float16);
  EXPECT_EQ(pool.groups(), 2);
  EXPECT_EQ(pool.group_of(0), 0);
  EXPECT_EQ(pool.group_of(1), 1);
  EXPECT_EQ(pool.group_of(2), 0);
  EXPECT_EQ(pool.group_of(3), 1);
  EXPECT_EQ(pool.reach(1).window, 40);
}

TEST(KvPool, CountsBytesOfLimitedLayers) {
  // Three KV blocks hold 40 + 1 + 32 tokens.
  EXPECT_EQ(KvPool::limited_bytes(full_and_sliding(40), mx::float16, 10000, 1),
            3U * 32 * 2 * 2 * 3 * 64);
  EXPECT_EQ(KvPool::limited_bytes(full_and_sliding(40), mx::float16, 20, 1),
            1U * 32 * 2 * 2 * 3 * 64);
}

TEST(SequenceState, FreesTheBlocksThatItsWindowHasPassed) {
  constexpr int tokens = 1000;
  constexpr int window = 40;
  KvPool pool(full_and_sliding(window), 40, mx::float16);
  SequenceState state(pool);
  int most = 0;
  for (int position = 0; position < tokens; ++position) {
    state.extend(1);
    most = std::max(most, pool.blocks() - pool.free_blocks(1));
    // What the next query sees is held, in blocks of its own.
    std::set<int> held;
    const int first = pool.reach(1).first_seen(position) / 32;
    for (int block = first; block <= position / 32; ++block) {
      held.insert(state.block_table(1).at(block));
    }
    ASSERT_EQ(static_cast<int>(held.size()), position / 32 - first + 1) << position;
    state.advance(1);
  }
  EXPECT_EQ(most, 3);
  EXPECT_EQ(pool.blocks() - pool.free_blocks(), (tokens + 31) / 32);
  EXPECT_EQ(state.block_table(1).size(), state.block_table().size());
  // Passed entries name a block that the sequence holds.
  EXPECT_EQ(state.block_table(1).front(), state.block_table(1).at((tokens - window) / 32));
}

TEST(SequenceState, SharesWhatItsWindowHoldsWithAFork) {
  KvPool pool(full_and_sliding(40), 40, mx::float16);
  {
    SequenceState state(pool);
    state.extend(320);
    state.advance(320);
    state.extend(0);  // passes what only the first rows saw
    SequenceState copy = state.fork();
    EXPECT_EQ(copy.block_table(1), state.block_table(1));
    state.extend(200);
    state.advance(200);
    state.extend(1);
    // The copy still holds its two.
    EXPECT_EQ(pool.blocks() - pool.free_blocks(1), 2 + 2);
    copy.extend(1);
    EXPECT_NE(copy.block_table(1).back(), state.block_table(1).at(10));
  }
  EXPECT_EQ(pool.free_blocks(0), 40);
  EXPECT_EQ(pool.free_blocks(1), 40);
}

TEST(SequenceState, ThrowsWhenThePoolIsEmptyAndLosesNothing) {
  KvPool pool(shapes, 2, mx::float16);
  {
    SequenceState state(pool);
    EXPECT_THROW(state.extend(100), std::logic_error);
  }
  EXPECT_EQ(pool.free_blocks(), 2);
}

}  // namespace
}  // namespace espalier::state
