#include "state/recurrent_pool.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "state/kv_pool.h"

namespace espalier::state {
namespace {

namespace mx = mlx::core;

const std::vector<RecurrentLayerShape> shapes = {{.taps = 4, .channels = 6, .floats = 10},
                                                 {.taps = 0, .channels = 0, .floats = 5}};
const std::vector<KvLayerShape> kv_shapes = {{.kv_heads = 1, .head_dim = 8}};

void fill(mx::array& array, int slot, float value) {
  const auto floats = static_cast<std::ptrdiff_t>(array.size() / array.shape(0));
  std::fill_n(array.data<float>() + slot * floats, floats, value);
}

float first(mx::array& array, int slot) {
  return array.data<float>()[static_cast<std::ptrdiff_t>(slot) * array.size() / array.shape(0)];
}

TEST(RecurrentPool, GivesEachLayerItsShape) {
  RecurrentPool pool(shapes, 3);
  EXPECT_EQ(pool.layer(0).convolution.shape(), (mx::Shape{3, 3, 6}));
  EXPECT_EQ(pool.layer(0).state.shape(), (mx::Shape{3, 10}));
  EXPECT_EQ(pool.layer(1).convolution.size(), 0U);
  EXPECT_EQ(pool.layer(1).state.shape(), (mx::Shape{3, 5}));
  EXPECT_TRUE(pool.layer(0).state.is_donatable());
  EXPECT_EQ(RecurrentPool::bytes_per_sequence(shapes), 4U * (3 * 6 + 10 + 5));
}

TEST(RecurrentPool, HandsOutEachSlotOnce) {
  RecurrentPool pool(shapes, 2);
  const int a = pool.allocate();
  const int b = pool.allocate();
  EXPECT_NE(a, b);
  EXPECT_THROW(pool.allocate(), std::logic_error);
  pool.release(a);
  EXPECT_EQ(pool.allocate(), a);
}

TEST(SequenceState, HoldsASlotWhereThereAreRecurrentLayers) {
  KvPool plain(kv_shapes, 2, mx::float32);
  EXPECT_EQ(SequenceState(plain).slot(), SequenceState::no_slot);
  KvPool pool(kv_shapes, 2, mx::float32, {.layers = shapes, .slots = 1});
  {
    SequenceState state(pool);
    EXPECT_EQ(pool.recurrent().free_slots(), 0);
    SequenceState moved = std::move(state);
    EXPECT_EQ(moved.slot(), 0);
    EXPECT_EQ(pool.recurrent().free_slots(), 0);
  }
  EXPECT_EQ(pool.recurrent().free_slots(), 1);
}

TEST(SequenceState, ForksAtABlockEnd) {
  KvPool pool(kv_shapes, 4, mx::float32, {.layers = shapes, .slots = 2});
  std::optional<SequenceState> original(pool);
  original->extend(kernels::kv_block_tokens);
  original->advance(kernels::kv_block_tokens);
  fill(pool.recurrent().layer(0).convolution, original->slot(), 1.0F);
  fill(pool.recurrent().layer(0).state, original->slot(), 2.0F);
  fill(pool.recurrent().layer(1).state, original->slot(), 3.0F);
  SequenceState copy = original->fork();
  EXPECT_EQ(copy.length(), kernels::kv_block_tokens);
  EXPECT_EQ(copy.block_table(), original->block_table());
  EXPECT_NE(copy.slot(), original->slot());
  // What the original writes from here on is its own.
  fill(pool.recurrent().layer(0).state, original->slot(), 9.0F);
  original->extend(1);
  copy.extend(1);
  EXPECT_NE(copy.block_table().back(), original->block_table().back());
  original.reset();
  EXPECT_EQ(first(pool.recurrent().layer(0).convolution, copy.slot()), 1.0F);
  EXPECT_EQ(first(pool.recurrent().layer(0).state, copy.slot()), 2.0F);
  EXPECT_EQ(first(pool.recurrent().layer(1).state, copy.slot()), 3.0F);
  EXPECT_EQ(pool.free_blocks(), 2);
  copy.advance(1);
  EXPECT_THROW(copy.fork(), std::logic_error);
}

}  // namespace
}  // namespace espalier::state
