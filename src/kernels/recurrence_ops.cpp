#include <utility>
#include <vector>

#include "kernels/recurrence.h"
#include "kernels/recurrence_checks.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;
using Batch = std::shared_ptr<const RecurrentBatch>;

/// Rows [first, first + count) of the first axis.
mx::array rows(const mx::array& x, int first, int count) {
  mx::Shape start(x.ndim(), 0);
  mx::Shape stop = x.shape();
  start[0] = first;
  stop[0] = first + count;
  return mx::slice(x, start, stop);
}

/// A slot's state in `shape`, or zeros where the sequence begins.
mx::array read_slot(const mx::array& state, const RecurrentRows& sequence, const mx::Shape& shape) {
  return sequence.position == 0 ? mx::zeros(shape)
                                : mx::reshape(rows(state, sequence.slot, 1), shape);
}

void write_slot(mx::array& state, const RecurrentRows& sequence, const mx::array& value) {
  mx::Shape shape = state.shape();
  shape[0] = 1;
  mx::Shape start(state.ndim(), 0);
  mx::Shape stop = state.shape();
  start[0] = sequence.slot;
  stop[0] = sequence.slot + 1;
  state = mx::slice_update(state, mx::reshape(value, shape), start, stop);
}

/// Runs `step(row, state) -> {output, state}` through every sequence's rows. `shape` is that of one
/// slot; the outputs are stacked where their rows lie in [T, ...].
template <class Step>
mx::array scan(mx::array& state, const RecurrentBatch& batch, const mx::Shape& shape,
               const mx::Shape& output_shape, const Step& step) {
  mx::array out = mx::zeros(output_shape);
  for (const RecurrentRows& sequence : batch) {
    mx::array held = read_slot(state, sequence, shape);
    for (int row = 0; row < sequence.rows; ++row) {
      const int at = sequence.first_row + row;
      auto [output, next] = step(at, held);
      held = std::move(next);
      mx::Shape start(output_shape.size(), 0);
      mx::Shape stop = output_shape;
      start[0] = at;
      stop[0] = at + 1;
      out = mx::slice_update(out, mx::expand_dims(output, 0), start, stop);
    }
    if (sequence.rows > 0) {
      write_slot(state, sequence, held);
    }
  }
  return out;
}

mx::array row_of(const mx::array& x, int row) { return mx::squeeze(rows(x, row, 1), 0); }

/// The last axis padded with zeros to recurrent_stride.
mx::array pad_columns(const mx::array& x) {
  const int columns = x.shape(-1);
  return mx::pad(x, std::vector<int>{-1}, mx::Shape{0},
                 mx::Shape{recurrent_stride(columns) - columns});
}

}  // namespace

mx::array causal_convolution_ops(const mx::array& x, mx::array& state, const Batch& batch,
                                 const Convolution& convolution) {
  check_convolution(x, state, *batch, convolution);
  const int taps = convolution.weight.shape(0);
  const int channels = x.shape(1);
  return scan(state, *batch, {taps - 1, channels}, x.shape(), [&](int row, const mx::array& held) {
    const mx::array window = mx::concatenate({held, rows(x, row, 1)}, 0);
    mx::array sum = mx::sum(window * convolution.weight, 0);
    if (convolution.bias) {
      sum = sum + *convolution.bias;
    }
    return std::pair(convolution.silu ? sum * mx::sigmoid(sum) : sum, rows(window, 1, taps - 1));
  });
}

mx::array selective_scan_ops(const SelectiveInputs& inputs, mx::array& state, const Batch& batch,
                             const SelectiveWeights& weights) {
  check_selective(inputs, state, *batch, weights);
  const int states = weights.a.shape(0);
  const mx::array biased =
      weights.step_bias ? inputs.time_step + *weights.step_bias : inputs.time_step;
  const mx::array steps = mx::logaddexp(biased, mx::array(0.0F));
  // Padded to the state's columns.
  const mx::array a = pad_columns(weights.a);
  return scan(
      state, *batch, {states, a.shape(1)}, inputs.x.shape(), [&](int row, const mx::array& held) {
        const mx::array x = row_of(inputs.x, row);
        const mx::array step = row_of(steps, row);
        const mx::array b = mx::reshape(row_of(inputs.b, row), {states, 1});
        const mx::array c = mx::reshape(row_of(inputs.c, row), {states, 1});
        const mx::array next = mx::exp(pad_columns(step) * a) * held + b * pad_columns(step * x);
        const mx::array sum = mx::slice(mx::sum(c * next, 0), {0}, {x.shape(0)});
        return std::pair(sum + weights.skip * x, next);
      });
}

mx::array gated_recurrence_ops(const mx::array& decay, const mx::array& x, mx::array& state,
                               const Batch& batch) {
  check_gated(decay, x, state, *batch);
  return scan(state, *batch, {x.shape(1)}, x.shape(), [&](int row, const mx::array& held) {
    const mx::array next = row_of(decay, row) * held + row_of(x, row);
    return std::pair(next, next);
  });
}

mx::array linear_recurrence_ops(const LinearRecurrenceInputs& inputs, mx::array& state,
                                const Batch& batch) {
  check_linear_recurrence(inputs, state, *batch);
  const int keys = inputs.q.shape(2);
  const int heads = inputs.v.shape(1);
  const int values = inputs.v.shape(2);
  const int repeats = heads / inputs.q.shape(1);
  const auto key_rows = [&](const mx::array& x, int row) {
    return mx::reshape(mx::repeat(row_of(x, row), repeats, 0), {heads, keys, 1});
  };
  const int decays = inputs.decay.ndim() == 3 ? keys : 1;
  return scan(
      state, *batch, {heads, keys, recurrent_stride(values)}, inputs.v.shape(),
      [&](int row, const mx::array& held) {
        const mx::array k = key_rows(inputs.k, row);
        const mx::array decayed = mx::reshape(row_of(inputs.decay, row), {heads, decays, 1}) * held;
        mx::array d = mx::expand_dims(pad_columns(row_of(inputs.v, row)), 1);
        if (inputs.beta) {
          d = mx::reshape(row_of(*inputs.beta, row), {heads, 1, 1}) *
              (d - mx::sum(k * decayed, 1, true));
        }
        const mx::array next = decayed + k * d;
        const mx::array sum = mx::sum(key_rows(inputs.q, row) * next, 1);
        return std::pair(mx::slice(sum, {0, 0}, {heads, values}), next);
      });
}

}  // namespace espalier::kernels
