#include "kernels/recurrence.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "kernels/packed_weights.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;
using tests::bytes_of;
using tests::ForcedInstructionSet;

constexpr int slots = 3;

mx::array random(mx::Shape shape, int seed) {
  mx::array x = mx::random::normal(std::move(shape), mx::float32, mx::random::key(seed));
  x.eval();
  return x;
}

/// Factors between 0 and 1.
mx::array random_decay(mx::Shape shape, int seed) {
  mx::array x = mx::sigmoid(random(std::move(shape), seed));
  x.eval();
  return x;
}

/// A state array that nobody else holds, full of what a kernel must not read at position 0.
mx::array fresh_state(mx::Shape shape) {
  mx::array state = mx::full(shape, 7.0F);
  state.eval();
  return state;
}

mx::array rows(const mx::array& x, int first, int count) {
  mx::Shape start(x.ndim(), 0);
  mx::Shape stop = x.shape();
  start[0] = first;
  stop[0] = first + count;
  return mx::slice(x, start, stop);
}

/// A kernel with its inputs: `run(first, count, state, batch, ops)` takes rows of the inputs.
struct Case {
  std::string name;
  mx::Shape state;
  std::function<mx::array(int first, int count, mx::array& state, const RecurrentBatch& batch,
                          bool ops)>
      run;
};

constexpr int total = 23;

std::shared_ptr<const RecurrentBatch> shared(const RecurrentBatch& batch) {
  return std::make_shared<const RecurrentBatch>(batch);
}

Case convolution(int channels, int taps, bool bias, bool silu) {
  const mx::array x = random({total, channels}, 1);
  const Convolution convolution{.weight = random({taps, channels}, 2),
                                .bias = bias ? std::optional(random({channels}, 3)) : std::nullopt,
                                .silu = silu};
  return {"convolution of " + std::to_string(channels),
          {slots, taps - 1, channels},
          [=](int first, int count, mx::array& state, const RecurrentBatch& batch, bool ops) {
            const auto function = ops ? causal_convolution_ops : causal_convolution;
            return function(rows(x, first, count), state, shared(batch), convolution);
          }};
}

Case selective(int channels, int states, bool bias) {
  const SelectiveInputs inputs{.x = random({total, channels}, 1),
                               .time_step = random({total, channels}, 2) * mx::array(4.0F),
                               .b = random({total, states}, 3),
                               .c = random({total, states}, 4)};
  const SelectiveWeights weights{
      .a = -mx::exp(random({states, channels}, 5)),
      .skip = random({channels}, 6),
      .step_bias = bias ? std::optional(random({channels}, 7)) : std::nullopt};
  return {"selective scan of " + std::to_string(channels),
          {slots, states * recurrent_stride(channels)},
          [=](int first, int count, mx::array& state, const RecurrentBatch& batch, bool ops) {
            const auto function = ops ? selective_scan_ops : selective_scan;
            return function({.x = rows(inputs.x, first, count),
                             .time_step = rows(inputs.time_step, first, count),
                             .b = rows(inputs.b, first, count),
                             .c = rows(inputs.c, first, count)},
                            state, shared(batch), weights);
          }};
}

Case gated(int channels) {
  const mx::array decay = random_decay({total, channels}, 1);
  const mx::array x = random({total, channels}, 2);
  return {"gated recurrence of " + std::to_string(channels),
          {slots, channels},
          [=](int first, int count, mx::array& state, const RecurrentBatch& batch, bool ops) {
            const auto function = ops ? gated_recurrence_ops : gated_recurrence;
            return function(rows(decay, first, count), rows(x, first, count), state, shared(batch));
          }};
}

struct Heads {
  int keys;
  int key_heads;
  int values;
  int heads;
};

Case linear(const Heads& heads, bool delta, bool per_key) {
  const LinearRecurrenceInputs inputs{
      .q = random({total, heads.key_heads, heads.keys}, 1),
      .k = random({total, heads.key_heads, heads.keys}, 2) *
           mx::array(1.0F / static_cast<float>(heads.keys)),
      .v = random({total, heads.heads, heads.values}, 3),
      .decay = per_key ? random_decay({total, heads.heads, heads.keys}, 4)
                       : random_decay({total, heads.heads}, 4),
      .beta = delta ? std::optional(random_decay({total, heads.heads}, 5)) : std::nullopt};
  return {"linear recurrence of " + std::to_string(heads.values) + (delta ? ", delta" : "") +
              (per_key ? ", decay per key" : ""),
          {slots, heads.heads * heads.keys * recurrent_stride(heads.values)},
          [=](int first, int count, mx::array& state, const RecurrentBatch& batch, bool ops) {
            const auto function = ops ? linear_recurrence_ops : linear_recurrence;
            return function({.q = rows(inputs.q, first, count),
                             .k = rows(inputs.k, first, count),
                             .v = rows(inputs.v, first, count),
                             .decay = rows(inputs.decay, first, count),
                             .beta = inputs.beta ? std::optional(rows(*inputs.beta, first, count))
                                                 : std::nullopt},
                            state, shared(batch));
          }};
}

std::vector<Case> cases() {
  return {convolution(64, 4, true, true),
          convolution(75, 3, false, false),
          convolution(8, 1, true, false),
          selective(128, 8, true),
          selective(19, 5, false),
          gated(64),
          gated(75),
          linear({16, 2, 16, 4}, true, false),
          linear({12, 4, 24, 4}, true, false),
          linear({8, 1, 130, 3}, false, false),
          linear({24, 2, 70, 2}, true, true),
          linear({5, 2, 48, 2}, false, true)};
}

/// The whole sequence in one call.
std::string whole(const Case& test) {
  mx::array state = fresh_state(test.state);
  return bytes_of(test.run(0, total, state, {{0, total, 0, 1}}, false));
}

TEST(Recurrence, AgreesWithPlainOperations) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    for (const auto set : tests::supported_sets()) {
      const ForcedInstructionSet forced(set);
      mx::array state = fresh_state(test.state);
      mx::array state_ops = fresh_state(test.state);
      const RecurrentBatch batch = {{0, 9, 0, 2}, {9, total - 9, 0, 0}};
      const mx::array actual = test.run(0, total, state, batch, false);
      const mx::array expected = test.run(0, total, state_ops, batch, true);
      EXPECT_TRUE(mx::allclose(actual, expected, 1e-4, 1e-5).item<bool>());
      // The states agree if what follows does.
      const mx::array next = test.run(3, 8, state, {{0, 8, 9, 2}}, false);
      const mx::array next_ops = test.run(3, 8, state_ops, {{0, 8, 9, 2}}, true);
      EXPECT_TRUE(mx::allclose(next, next_ops, 1e-4, 1e-5).item<bool>());
    }
  }
}

TEST(Recurrence, CutsAndNeighboursKeepBits) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    const std::string expected = whole(test);
    const std::size_t row_bytes = expected.size() / total;
    for (const auto set : tests::supported_sets()) {
      const ForcedInstructionSet forced(set);
      for (const int threads : {1, 3}) {
        base::set_compute_threads(threads);
        EXPECT_EQ(whole(test), expected);
        // Two sequences over the same rows, one of them cut; the batches have other orders.
        mx::array state = fresh_state(test.state);
        const auto head = bytes_of(test.run(0, 7, state, {{0, 7, 0, 2}}, false));
        const auto next = bytes_of(test.run(7, 1, state, {{0, 1, 7, 2}}, false));
        const auto rest = bytes_of(test.run(8, total - 8, state, {{0, total - 8, 8, 2}}, false));
        std::string cut = head;
        cut += next;
        cut += rest;
        EXPECT_EQ(cut, expected);
        // Rows 0 to 9 as one sequence, the others as a new one: only the first keeps its bits.
        const auto both =
            bytes_of(test.run(0, total, state, {{10, total - 10, 0, 0}, {0, 10, 0, 1}}, false));
        EXPECT_TRUE(std::equal(both.begin(), both.begin() + 10 * row_bytes, expected.begin()));
      }
    }
  }
  base::set_compute_threads(base::default_compute_threads());
}

TEST(Recurrence, RefusesWhatDoesNotFit) {
  const Case test = gated(16);
  mx::array state = fresh_state(test.state);
  EXPECT_THROW(test.run(0, 4, state, {{0, 5, 0, 0}}, false), std::invalid_argument);
  EXPECT_THROW(test.run(0, 4, state, {{0, 4, 0, slots}}, false), std::invalid_argument);
  EXPECT_THROW(test.run(0, 4, state, {{0, 4, 0, -1}}, true), std::invalid_argument);
  mx::array narrow = fresh_state({slots, 15});
  EXPECT_THROW(test.run(0, 4, narrow, {{0, 4, 0, 0}}, false), std::invalid_argument);
  mx::array shared_state = fresh_state(test.state);
  const mx::array other = shared_state;
  EXPECT_THROW(test.run(0, 4, shared_state, {{0, 4, 0, 0}}, false), std::logic_error);
}

}  // namespace
}  // namespace espalier::kernels
