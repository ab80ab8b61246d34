#include "state/kv_pool.h"

#include <cstdint>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>

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
