#include "kernels/recurrence.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/in_place.h"
#include "kernels/primitive.h"
#include "kernels/recurrence_checks.h"
#include "kernels/recurrence_cpu.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;
using Batch = std::shared_ptr<const RecurrentBatch>;

/// Multiply-adds below which waking the other threads costs more than it saves.
constexpr long serial_work = 100000;

/// Calls `work(i)` for all i in [0, count), on all threads when `cost` multiply-adds are many.
template <class Work>
void run_tasks(std::size_t count, long cost, const Work& work) {
  if (count < 2 || cost < serial_work) {
    for (std::size_t i = 0; i < count; ++i) {
      work(i);
    }
    return;
  }
  base::TileCounter tiles(count);
  base::compute_pool().run([&](int) {
    for (std::size_t i; tiles.next(i);) {
      work(i);
    }
  });
}

/// Calls `use(sequence, first, count)` for every tile of [0, columns) of every sequence that has
/// rows.
template <class Use>
void run_tiles(const RecurrentBatch& batch, int columns, long cost_per_row, const Use& use) {
  const int tiles = (columns + recurrence_tile - 1) / recurrence_tile;
  long rows = 0;
  for (const RecurrentRows& sequence : batch) {
    rows += sequence.rows;
  }
  run_tasks(batch.size() * tiles, rows * cost_per_row, [&](std::size_t i) {
    const int first = static_cast<int>(i % tiles) * recurrence_tile;
    const RecurrentRows& sequence = batch[i / tiles];
    if (sequence.rows > 0) {
      use(sequence, first, std::min(recurrence_tile, columns - first));
    }
  });
}

/// Inputs: the state, then those of the kernel; outputs: the result, the state.
struct StateNode {
  Batch batch;

  void allocate(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    outputs[0].set_data(mx::allocator::malloc(outputs[0].nbytes()));
    take_over(inputs[0], outputs[1]);
  }

  static std::vector<mx::array> contiguous(const std::vector<mx::array>& inputs) {
    std::vector<mx::array> rows = {inputs[0]};
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      rows.push_back(row_contiguous(inputs[i]));
    }
    return rows;
  }

  static float* slot(mx::array& state, int slot) {
    const std::size_t floats = state.size() / static_cast<std::size_t>(state.shape(0));
    return state.data<float>() + floats * static_cast<std::size_t>(slot);
  }
};

struct ConvolutionNode : StateNode {
  static constexpr const char* name = "CausalConvolution";

  bool has_bias;
  bool silu;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const std::vector<mx::array> in = contiguous(inputs);
    const int channels = in[1].shape(1);
    const int taps = in[2].shape(0);
    run_tiles(
        *batch, channels, static_cast<long>(channels) * taps,
        [&](const RecurrentRows& sequence, int first, int count) {
          const long at = static_cast<long>(sequence.first_row) * channels + first;
          recurrence_cpu().convolution({.x = in[1].data<float>() + at,
                                        .out = outputs[0].data<float>() + at,
                                        .row_stride = channels,
                                        .state = slot(outputs[1], sequence.slot) + first,
                                        .starts = sequence.position == 0,
                                        .weight = in[2].data<float>() + first,
                                        .bias = has_bias ? in[3].data<float>() + first : nullptr,
                                        .taps = taps,
                                        .rows = sequence.rows,
                                        .channels = count,
                                        .silu = silu});
        });
  }
};

struct SelectiveNode : StateNode {
  static constexpr const char* name = "SelectiveScan";

  bool has_bias;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const std::vector<mx::array> in = contiguous(inputs);
    const int channels = in[1].shape(1);
    const int states = in[5].shape(0);
    // An exponential counts for some ten multiply-adds.
    run_tiles(
        *batch, channels, 10L * channels * states,
        [&](const RecurrentRows& sequence, int first, int count) {
          const long at = static_cast<long>(sequence.first_row) * channels + first;
          const long bc = static_cast<long>(sequence.first_row) * states;
          recurrence_cpu().selective({.x = in[1].data<float>() + at,
                                      .time_step = in[2].data<float>() + at,
                                      .out = outputs[0].data<float>() + at,
                                      .row_stride = channels,
                                      .b = in[3].data<float>() + bc,
                                      .c = in[4].data<float>() + bc,
                                      .bc_stride = states,
                                      .a = in[5].data<float>() + first,
                                      .skip = in[6].data<float>() + first,
                                      .step_bias = has_bias ? in[7].data<float>() + first : nullptr,
                                      .state = slot(outputs[1], sequence.slot) + first,
                                      .state_stride = recurrent_stride(channels),
                                      .starts = sequence.position == 0,
                                      .states = states,
                                      .rows = sequence.rows,
                                      .channels = count});
        });
  }
};

struct GatedNode : StateNode {
  static constexpr const char* name = "GatedRecurrence";

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const std::vector<mx::array> in = contiguous(inputs);
    const int channels = in[1].shape(1);
    run_tiles(*batch, channels, channels, [&](const RecurrentRows& sequence, int first, int count) {
      const long at = static_cast<long>(sequence.first_row) * channels + first;
      recurrence_cpu().gated({.decay = in[1].data<float>() + at,
                              .x = in[2].data<float>() + at,
                              .out = outputs[0].data<float>() + at,
                              .row_stride = channels,
                              .state = slot(outputs[1], sequence.slot) + first,
                              .starts = sequence.position == 0,
                              .rows = sequence.rows,
                              .channels = count});
    });
  }
};

struct LinearRecurrenceNode : StateNode {
  static constexpr const char* name = "LinearRecurrence";

  bool delta;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    const std::vector<mx::array> in = contiguous(inputs);
    const int key_heads = in[1].shape(1);
    const int keys = in[1].shape(2);
    const int heads = in[3].shape(1);
    const int values = in[3].shape(2);
    const int stride = recurrent_stride(values);
    const bool per_key = in[4].ndim() == 3;
    const int decay_stride = per_key ? heads * keys : heads;
    // Head h has the columns from h * width on, so that a tile never spans two heads.
    const int width = (values + recurrence_tile - 1) / recurrence_tile * recurrence_tile;
    run_tiles(
        *batch, heads * width, (delta ? 4L : 3L) * heads * keys * stride,
        [&](const RecurrentRows& sequence, int tile, int) {
          const int head = tile / width;
          const int first = tile % width;
          const int key_head = head / (heads / key_heads);
          const long row = sequence.first_row;
          const long qk = (row * key_heads + key_head) * keys;
          const long v = (row * heads + head) * values + first;
          recurrence_cpu().linear(
              {.q = in[1].data<float>() + qk,
               .k = in[2].data<float>() + qk,
               .v = in[3].data<float>() + v,
               .decay = in[4].data<float>() + row * decay_stride + head * (per_key ? keys : 1),
               .beta = delta ? in[5].data<float>() + row * heads + head : nullptr,
               .out = outputs[0].data<float>() + v,
               .q_stride = key_heads * keys,
               .k_stride = key_heads * keys,
               .v_stride = heads * values,
               .decay_stride = decay_stride,
               .beta_stride = heads,
               .decay_per_key = per_key,
               .state = slot(outputs[1], sequence.slot) + static_cast<long>(head) * keys * stride +
                        first,
               .state_stride = stride,
               .starts = sequence.position == 0,
               .keys = keys,
               .rows = sequence.rows,
               .columns = std::min(recurrence_tile, values - first)});
        });
  }
};

/// A node that reads `inputs`, updates `state` in place, and gives an array of `shape`.
template <class Node>
mx::array run(Node node, const mx::Shape& shape, mx::array& state,
              const std::vector<mx::array>& inputs) {
  require_sole_owner(state);
  const mx::Shape state_shape = state.shape();
  // The node's inputs must become the only owners of the state.
  std::vector<mx::array> all;
  all.push_back(std::move(state));
  all.insert(all.end(), inputs.begin(), inputs.end());
  auto outputs = make_nodes(std::move(node), {shape, state_shape}, {mx::float32, mx::float32}, all);
  state = std::move(outputs[1]);
  return std::move(outputs[0]);
}

}  // namespace

mx::array causal_convolution(const mx::array& x, mx::array& state, const Batch& batch,
                             const Convolution& convolution) {
  check_convolution(x, state, *batch, convolution);
  std::vector<mx::array> inputs = {x, convolution.weight};
  if (convolution.bias) {
    inputs.push_back(*convolution.bias);
  }
  return run(ConvolutionNode{{batch}, convolution.bias.has_value(), convolution.silu}, x.shape(),
             state, inputs);
}

mx::array selective_scan(const SelectiveInputs& inputs, mx::array& state, const Batch& batch,
                         const SelectiveWeights& weights) {
  check_selective(inputs, state, *batch, weights);
  std::vector<mx::array> all = {inputs.x, inputs.time_step, inputs.b,
                                inputs.c, weights.a,        weights.skip};
  if (weights.step_bias) {
    all.push_back(*weights.step_bias);
  }
  return run(SelectiveNode{{batch}, weights.step_bias.has_value()}, inputs.x.shape(), state, all);
}

mx::array gated_recurrence(const mx::array& decay, const mx::array& x, mx::array& state,
                           const Batch& batch) {
  check_gated(decay, x, state, *batch);
  return run(GatedNode{{batch}}, x.shape(), state, {decay, x});
}

mx::array linear_recurrence(const LinearRecurrenceInputs& inputs, mx::array& state,
                            const Batch& batch) {
  check_linear_recurrence(inputs, state, *batch);
  std::vector<mx::array> all = {inputs.q, inputs.k, inputs.v, inputs.decay};
  if (inputs.beta) {
    all.push_back(*inputs.beta);
  }
  return run(LinearRecurrenceNode{{batch}, inputs.beta.has_value()}, inputs.v.shape(), state, all);
}

}  // namespace espalier::kernels
