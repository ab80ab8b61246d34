#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "kernels/cpu_features.h"
#include "kernels/packed_weights.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;
using tests::bytes_of;
using tests::supported_sets;

constexpr int pool_blocks = 64;

struct Shape {
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  std::optional<int> value_dim = {};  // absent: as head_dim

  int values() const { return value_dim.value_or(head_dim); }
  int columns() const { return (heads + kv_heads) * head_dim + kv_heads * values(); }
};

class AttentionTest : public testing::Test {
 protected:
  void TearDown() override {
    force_instruction_set(std::nullopt);
    base::set_compute_threads(base::default_compute_threads());
  }

  mx::array random(mx::Shape shape, mx::Dtype dtype, float scale = 1.0F) {
    std::normal_distribution<float> normal(0.0F, scale);
    std::size_t size = 1;
    for (int extent : shape) size *= extent;
    std::vector<float> values(size);
    for (float& value : values) value = normal(generator_);
    return mx::astype(mx::array(values.data(), std::move(shape)), dtype);
  }

  AttentionOptions options(const Shape& shape) {
    return {.heads = shape.heads,
            .kv_heads = shape.kv_heads,
            .head_dim = shape.head_dim,
            .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim))};
  }

  RmsNorm norm(int d) { return {mx::add(random({d}, mx::float32, 0.1F), mx::array(1.0F)), 1e-5F}; }

  static Rope rope(int dims, bool interleaved, float magnitude = 1.0F) {
    std::vector<float> inv_freq(dims / 2);
    for (int i = 0; i < dims / 2; ++i) {
      inv_freq[i] = std::pow(10000.0F, -2.0F * static_cast<float>(i) / static_cast<float>(dims));
    }
    return {dims, interleaved, mx::array(inv_freq.data(), {dims / 2}), magnitude};
  }

  std::mt19937 generator_{7};
};

KvLayer zero_layer(const Shape& shape, mx::Dtype dtype, float fill = 0.0F) {
  return {mx::astype(mx::full({pool_blocks, shape.kv_heads, shape.head_dim, kv_block_tokens}, fill),
                     dtype),
          mx::astype(mx::full({pool_blocks, shape.kv_heads, kv_block_tokens, shape.values()}, fill),
                     dtype)};
}

/// A pool of its own: a plain copy of an array would share the buffer.
KvLayer copy(const KvLayer& layer) {
  const auto zero = mx::zeros({}, layer.keys.dtype());
  KvLayer result = {mx::add(layer.keys, zero), mx::add(layer.values, zero)};
  mx::eval(result.keys, result.values);
  return result;
}

/// Block tables that share no block and are in no order.
class Tables {
 public:
  Tables() : blocks_(pool_blocks) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
    std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937(3));
  }

  std::vector<int> take(int tokens) {
    std::vector<int> table;
    for (int i = 0; i < tokens; i += kv_block_tokens) {
      table.push_back(blocks_.back());
      blocks_.pop_back();
    }
    return table;
  }

 private:
  std::vector<int> blocks_;
};

std::vector<float> to_floats(const mx::array& array) {
  auto plain = mx::contiguous(mx::astype(array, mx::float32));
  mx::eval(plain);
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

/// Runs both forms over the same steps from the same random pool and compares them.
void expect_like_ops(const std::vector<mx::array>& steps,
                     const std::vector<AttentionBatch>& batches, const KvLayer& pool,
                     const AttentionOptions& options, float tolerance) {
  KvLayer ours = copy(pool);
  KvLayer theirs = copy(pool);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const auto batch = std::make_shared<const AttentionBatch>(batches[step]);
    const auto actual = to_floats(attention(steps[step], ours, batch, options));
    const auto expected = to_floats(attention_ops(steps[step], theirs, batch, options));
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], tolerance) << "step " << step << " element " << i;
    }
  }
  const float pool_tolerance = pool.keys.dtype() == mx::float32 ? 1e-5F : 4e-2F;
  for (const auto& [actual, expected] :
       {std::pair(ours.keys, theirs.keys), std::pair(ours.values, theirs.values)}) {
    const auto a = to_floats(actual);
    const auto b = to_floats(expected);
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], pool_tolerance);
  }
}

/// A prefill of three sequences in one batch, then chunks and single rows of all of them.
struct Steps {
  std::vector<AttentionBatch> batches;
  std::vector<int> rows;
};

Steps ragged_steps() {
  Tables tables;
  const auto a = tables.take(400);
  const auto b = tables.take(200);
  const auto c = tables.take(100);
  Steps steps;
  steps.batches.push_back({{0, 150, 0, a}, {150, 33, 0, b}, {183, 1, 0, c}});
  steps.batches.push_back({{66, 1, 150, a}, {0, 65, 33, b}, {65, 1, 1, c}});
  steps.batches.push_back({{0, 130, 151, a}, {131, 3, 98, b}, {130, 1, 2, c}});
  for (const auto& batch : steps.batches) {
    int rows = 0;
    for (const auto& sequence : batch) rows += sequence.rows;
    steps.rows.push_back(rows);
  }
  return steps;
}

float tolerance(mx::Dtype io, mx::Dtype kv) {
  return io == mx::bfloat16   ? 2e-2F
         : io == mx::float16  ? 4e-3F
         : kv == mx::bfloat16 ? 1e-2F  // a rounding of k or v may differ
         : kv == mx::float16  ? 1e-3F
                              : 2e-5F;
}

class AttentionSets : public AttentionTest, public testing::WithParamInterface<InstructionSet> {
 protected:
  void SetUp() override { force_instruction_set(GetParam()); }

  void compare(const Shape& shape, const AttentionOptions& options, mx::Dtype io = mx::float32,
               mx::Dtype kv = mx::float32) {
    const Steps steps = ragged_steps();
    std::vector<mx::array> inputs;
    for (int rows : steps.rows) {
      inputs.push_back(random({rows, shape.columns()}, io));
      mx::eval(inputs.back());
    }
    expect_like_ops(inputs, steps.batches, zero_layer(shape, kv), options, tolerance(io, kv));
  }
};

TEST_P(AttentionSets, HeadCounts) {
  for (const Shape shape : {Shape{1, 1, 16}, Shape{3, 3, 16}, Shape{9, 3, 64}, Shape{8, 2, 32},
                            Shape{7, 1, 16}, Shape{50, 1, 8}}) {
    SCOPED_TRACE(std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads));
    compare(shape, options(shape));
  }
}

TEST_P(AttentionSets, HeadDimensions) {
  for (const int d : {1, 5, 8, 24, 80, 96, 100, 128, 256}) {
    SCOPED_TRACE(d);
    const Shape shape{2, 1, d};
    compare(shape, options(shape));
    compare(shape, options(shape), mx::float32, mx::float16);
  }
}

TEST_P(AttentionSets, Types) {
  const Shape shape{4, 2, 64};
  for (const auto io : {mx::float32, mx::float16, mx::bfloat16}) {
    for (const auto kv : {mx::float32, mx::float16, mx::bfloat16}) {
      compare(shape, options(shape), io, kv);
    }
  }
}

TEST_P(AttentionSets, WindowsAndSoftCaps) {
  const Shape shape{4, 2, 32};
  for (const int window : {1, 5, 31, 32, 33, 128, 200}) {
    SCOPED_TRACE(window);
    auto chosen = options(shape);
    chosen.window = window;
    compare(shape, chosen);
  }
  auto capped = options(shape);
  capped.softcap = 2.0F;
  compare(shape, capped);
  capped.window = 40;
  compare(shape, capped);
}

TEST_P(AttentionSets, NormsAndRotation) {
  for (const int d : {16, 20, 64}) {
    const Shape shape{4, 2, d};
    for (const bool interleaved : {false, true}) {
      for (const int dims : {d, d / 2}) {
        auto chosen = options(shape);
        chosen.q_norm = norm(d);
        chosen.k_norm = norm(d);
        chosen.rope = rope(dims, interleaved, 1.25F);
        compare(shape, chosen);
      }
    }
  }
}

TEST_P(AttentionSets, ChunksSinksAndSlopes) {
  const Shape shape{4, 2, 32};
  for (const int chunk : {1, 5, 32, 40, 128, 200}) {
    SCOPED_TRACE(chunk);
    auto chosen = options(shape);
    chosen.chunk = chunk;
    compare(shape, chosen);
  }
  auto sinking = options(shape);
  sinking.sinks = random({shape.heads}, mx::float32, 4.0F);
  compare(shape, sinking);
  sinking.window = 40;
  compare(shape, sinking);
  auto sloping = options(shape);
  sloping.alibi_slopes = mx::abs(random({shape.heads}, mx::float32, 0.2F));
  compare(shape, sloping);
}

TEST_P(AttentionSets, ValuesOfTheirOwnSize) {
  for (const auto& [d, dv] : {std::pair(24, 16), std::pair(16, 24), std::pair(20, 5)}) {
    SCOPED_TRACE(dv);
    const Shape shape{.heads = 4, .kv_heads = 2, .head_dim = d, .value_dim = dv};
    auto chosen = options(shape);
    chosen.value_dim = dv;
    chosen.v_norm = norm(dv);
    compare(shape, chosen);
    compare(shape, chosen, mx::bfloat16, mx::float16);
  }
}

TEST_P(AttentionSets, NormsBehindRotation) {
  const Shape shape{4, 2, 20};
  auto chosen = options(shape);
  chosen.q_norm = norm(20);
  chosen.k_norm = norm(20);
  chosen.rope = rope(12, false);
  chosen.norm_after_rope = true;
  compare(shape, chosen);
}

TEST_P(AttentionSets, ValuesWithinKeys) {
  for (const auto& [heads, rank, rotated] : {std::tuple(3, 20, 8), std::tuple(50, 8, 4)}) {
    SCOPED_TRACE(heads);
    const Shape shape{.heads = heads, .kv_heads = 1, .head_dim = rotated + rank, .value_dim = 0};
    auto chosen = options(shape);
    chosen.value_dim = rank;
    chosen.rope = rope(rotated, true);
    chosen.values_in_keys = true;
    compare(shape, chosen, mx::float32, heads == 3 ? mx::float16 : mx::float32);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionSets, testing::ValuesIn(supported_sets()),
                         [](const auto& info) { return std::string(to_string(info.param)); });

/// Angles far out must still be exact: attention over two keys at neighbouring positions depends on
/// their distance alone.
TEST_F(AttentionTest, RotationIsAccurateFarOut) {
  const Shape shape{1, 1, 64};
  auto chosen = options(shape);
  chosen.rope = rope(64, false);
  const auto qkv = random({2, 3 * 64}, mx::float32, 2.0F);
  std::vector<std::vector<float>> results;
  for (const int position : {0, 131008}) {
    auto layer = zero_layer(shape, mx::float32);
    // The keys before are out of the window.
    chosen.window = 2;
    std::vector<int> table((position + 2 + kv_block_tokens - 1) / kv_block_tokens, 5);
    const auto batch =
        std::make_shared<const AttentionBatch>(AttentionBatch{{0, 2, position, table}});
    const auto out = to_floats(attention(qkv, layer, batch, chosen));
    results.emplace_back(out.begin() + 64, out.end());
  }
  for (int i = 0; i < 64; ++i) EXPECT_NEAR(results[0][i], results[1][i], 2e-5F);
}

/// What an unwritten or recycled KV block holds must not matter, not even a NaN.
TEST_F(AttentionTest, GarbageInThePoolDoesNotMatter) {
  const Shape shape{3, 1, 64};
  const auto steps = ragged_steps();
  for (const auto set : supported_sets()) {
    force_instruction_set(set);
    auto clean = zero_layer(shape, mx::float16);
    auto dirty = zero_layer(shape, mx::float16, NAN);
    for (std::size_t step = 0; step < steps.batches.size(); ++step) {
      const auto qkv = random({steps.rows[step], 5 * 64}, mx::float32);
      const auto batch = std::make_shared<const AttentionBatch>(steps.batches[step]);
      EXPECT_EQ(bytes_of(attention(qkv, clean, batch, options(shape))),
                bytes_of(attention(qkv, dirty, batch, options(shape))));
    }
  }
}

/// The rows [0, rows) of one sequence in pieces of `chunk` rows, alone.
std::string run_alone(const mx::array& qkv, const Shape& shape, mx::Dtype kv,
                      const AttentionOptions& options, int chunk) {
  auto layer = zero_layer(shape, kv);
  Tables tables;
  const int rows = qkv.shape(0);
  const auto table = tables.take(rows);
  std::string out;
  for (int first = 0; first < rows; first += chunk) {
    const int end = std::min(rows, first + chunk);
    const auto batch =
        std::make_shared<const AttentionBatch>(AttentionBatch{{0, end - first, first, table}});
    const auto piece =
        bytes_of(attention(mx::slice(qkv, {first, 0}, {end, qkv.shape(1)}), layer, batch, options));
    out += piece;
  }
  return out;
}

/// The same rows beside other sequences, in pieces of changing size.
std::string run_in_company(const mx::array& qkv, const mx::array& others, const Shape& shape,
                           mx::Dtype kv, const AttentionOptions& options) {
  auto layer = zero_layer(shape, kv);
  Tables tables;
  const int rows = qkv.shape(0);
  const auto other = tables.take(others.shape(0));
  const auto third = tables.take(rows);
  const auto table = tables.take(rows);
  std::string out;
  int first = 0;
  for (int step = 1; first < rows; ++step) {
    const int count = std::min(rows - first, step * 7 % 40 + 1);
    const auto own = mx::slice(qkv, {first, 0}, {first + count, qkv.shape(1)});
    const auto one = mx::slice(others, {step, 0}, {step + 1, qkv.shape(1)});
    const auto batch = std::make_shared<const AttentionBatch>(
        AttentionBatch{{count + 1, 1, step, other}, {1, count, first, table}, {0, 1, step, third}});
    const auto all = attention(mx::concatenate({one, own, one}, 0), layer, batch, options);
    const auto piece = bytes_of(mx::slice(all, {1, 0}, {count + 1, all.shape(1)}));
    out += piece;
    first += count;
  }
  return out;
}

TEST_F(AttentionTest, RowsKeepTheirBitsWhateverSharesTheBatch) {
  constexpr int rows = 270;
  for (const auto& [shape, types] :
       {std::pair(Shape{9, 3, 64}, std::vector{mx::float16}),
        std::pair(Shape{4, 4, 20}, std::vector{mx::float16, mx::float32}),
        std::pair(Shape{16, 2, 80}, std::vector{mx::bfloat16})}) {
    for (const auto kv : types) {
      for (const int window : {0, 70}) {
        SCOPED_TRACE(std::to_string(shape.head_dim) + " window " + std::to_string(window));
        auto chosen = options(shape);
        chosen.window = window;
        chosen.softcap = window > 0 ? 5.0F : 0.0F;
        chosen.rope = rope(shape.head_dim, window > 0);
        chosen.q_norm = norm(shape.head_dim);
        const auto width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
        const auto qkv = random({rows, width}, mx::float32);
        const auto others = random({rows, width}, mx::float32);
        base::set_compute_threads(1);
        force_instruction_set(supported_sets().back());
        const auto expected = run_alone(qkv, shape, kv, chosen, rows);
        for (const auto set : supported_sets()) {
          force_instruction_set(set);
          EXPECT_EQ(run_alone(qkv, shape, kv, chosen, rows), expected) << to_string(set);
          EXPECT_EQ(run_in_company(qkv, others, shape, kv, chosen), expected) << to_string(set);
        }
        force_instruction_set(std::nullopt);
        for (const int chunk : {1, 2, 3, 5, 16, 17, 31, 32, 33, 100, 257}) {
          EXPECT_EQ(run_alone(qkv, shape, kv, chosen, chunk), expected) << chunk;
        }
        for (const int threads : {2, 3, 4}) {
          base::set_compute_threads(threads);
          EXPECT_EQ(run_alone(qkv, shape, kv, chosen, 33), expected) << threads;
          EXPECT_EQ(run_alone(qkv, shape, kv, chosen, rows), expected) << threads;
          EXPECT_EQ(run_in_company(qkv, others, shape, kv, chosen), expected) << threads;
        }
      }
    }
  }
}

/// A layer that uses another's keys and values gives what that layer's own queries would.
TEST_F(AttentionTest, SharedKeysAreThoseOfTheOtherLayer) {
  const Shape shape{4, 2, 16};
  const auto qkv = random({40, shape.columns()}, mx::float32);
  Tables tables;
  const auto batch = std::make_shared<const AttentionBatch>(
      AttentionBatch{{.first_row = 0, .rows = 40, .position = 0, .block_table = tables.take(40)}});
  auto chosen = options(shape);
  chosen.rope = rope(16, false);
  KvLayer layer = zero_layer(shape, mx::float32);
  mx::eval(layer.keys, layer.values);
  const auto expected = to_floats(attention(qkv, layer, batch, chosen));
  chosen.shared_kv = true;
  const auto queries = mx::contiguous(mx::slice(qkv, {0, 0}, {40, shape.heads * shape.head_dim}));
  EXPECT_EQ(to_floats(attention(queries, layer, batch, chosen)), expected);
  EXPECT_EQ(to_floats(attention_ops(queries, layer, batch, chosen)).size(), expected.size());
}

TEST_F(AttentionTest, EveryRowCount) {
  const Shape shape{6, 2, 48};
  const auto width = 10 * 48;
  const auto qkv = random({33, width}, mx::float32);
  const auto expected = run_alone(qkv, shape, mx::float16, options(shape), 33);
  const std::size_t row_bytes = expected.size() / 33;
  for (int rows = 1; rows <= 33; ++rows) {
    const auto some =
        run_alone(mx::slice(qkv, {0, 0}, {rows, width}), shape, mx::float16, options(shape), rows);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), expected.begin())) << rows;
    EXPECT_EQ(some.size(), rows * row_bytes);
  }
}

TEST_F(AttentionTest, UpdatesThePoolInPlace) {
  const Shape shape{2, 1, 16};
  KvLayer layer = copy(zero_layer(shape, mx::float16));
  const void* keys = layer.keys.data<void>();
  const void* values = layer.values.data<void>();
  Tables tables;
  const auto table = tables.take(64);
  const auto qkv = random({4, 4 * 16}, mx::float32);
  // Two steps in one evaluation: the second must wait for the first, not take it for an owner.
  const auto step = [&](int position) {
    return attention(
        qkv, layer, std::make_shared<const AttentionBatch>(AttentionBatch{{0, 4, position, table}}),
        options(shape));
  };
  auto first = step(0);
  auto second = step(4);
  mx::eval(first, second);
  EXPECT_EQ(layer.keys.data<void>(), keys);
  EXPECT_EQ(layer.values.data<void>(), values);
}

TEST_F(AttentionTest, RefusesAPoolWithAnotherOwner) {
  const Shape shape{2, 1, 16};
  KvLayer layer = copy(zero_layer(shape, mx::float16));
  const auto owner = layer.keys;
  Tables tables;
  const auto batch =
      std::make_shared<const AttentionBatch>(AttentionBatch{{0, 1, 0, tables.take(1)}});
  EXPECT_THROW(attention(random({1, 4 * 16}, mx::float32), layer, batch, options(shape)),
               std::logic_error);
}

TEST_F(AttentionTest, RefusesBatchesThatDoNotFit) {
  const Shape shape{2, 1, 16};
  const auto qkv = random({2, 4 * 16}, mx::float32);
  for (const AttentionBatch& batch :
       {AttentionBatch{{0, 1, 0, {1}}}, AttentionBatch{{0, 3, 0, {1}}},
        AttentionBatch{{1, 2, 0, {1}}}, AttentionBatch{{0, 2, 31, {1}}},
        AttentionBatch{{0, 2, 0, {pool_blocks}}}, AttentionBatch{{0, 2, 0, {-1}}}}) {
    KvLayer layer = zero_layer(shape, mx::float32);
    EXPECT_THROW(
        attention(qkv, layer, std::make_shared<const AttentionBatch>(batch), options(shape)),
        std::invalid_argument);
  }
}

}  // namespace
}  // namespace espalier::kernels
