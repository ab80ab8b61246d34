#include "kernels/recurrence_checks.h"

#include <stdexcept>
#include <string>

#include "kernels/recurrence_cpu.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;

void check(bool holds, const char* function, const char* expected) {
  if (!holds) {
    throw std::invalid_argument(std::string("[") + function + "] expected " + expected);
  }
}

bool is(const mx::array& array, const mx::Shape& shape) {
  return array.dtype() == mx::float32 && array.shape() == shape;
}

void check_batch(const RecurrentBatch& batch, int rows, int slots, const char* function) {
  for (const RecurrentRows& sequence : batch) {
    check(sequence.first_row >= 0 && sequence.rows >= 0 &&
              sequence.first_row + sequence.rows <= rows && sequence.position >= 0 &&
              sequence.slot >= 0 && sequence.slot < slots,
          function, "sequences within the rows and the state's slots");
  }
}

}  // namespace

void check_convolution(const mx::array& x, const mx::array& state, const RecurrentBatch& batch,
                       const Convolution& convolution) {
  constexpr const char* name = "causal_convolution";
  check(x.ndim() == 2 && convolution.weight.ndim() == 2 && state.ndim() == 3, name,
        "x [T, C], weight [taps, C] and state [slots, taps - 1, C]");
  const int channels = x.shape(1);
  const int taps = convolution.weight.shape(0);
  check(taps >= 1 && taps <= most_taps, name, "1 to 16 taps");
  check(is(x, x.shape()) && is(convolution.weight, {taps, channels}) &&
            is(state, {state.shape(0), taps - 1, channels}) &&
            (!convolution.bias || is(*convolution.bias, {channels})),
        name, "f32 x [T, C], weight [taps, C], bias [C] and state [slots, taps - 1, C]");
  check_batch(batch, x.shape(0), state.shape(0), name);
}

void check_selective(const SelectiveInputs& inputs, const mx::array& state,
                     const RecurrentBatch& batch, const SelectiveWeights& weights) {
  constexpr const char* name = "selective_scan";
  check(inputs.x.ndim() == 2 && weights.a.ndim() == 2 && state.ndim() == 2, name,
        "x [T, C], a [N, C] and state [slots, N stride(C)]");
  const int rows = inputs.x.shape(0);
  const int channels = inputs.x.shape(1);
  const int states = weights.a.shape(0);
  check(is(inputs.x, {rows, channels}) && is(inputs.time_step, {rows, channels}) &&
            is(inputs.b, {rows, states}) && is(inputs.c, {rows, states}),
        name, "f32 x and time_step [T, C], b and c [T, N]");
  check(is(weights.a, {states, channels}) && is(weights.skip, {channels}) &&
            (!weights.step_bias || is(*weights.step_bias, {channels})) &&
            is(state, {state.shape(0), states * recurrent_stride(channels)}),
        name, "f32 a [N, C], skip [C], step_bias [C] and state [slots, N stride(C)]");
  check_batch(batch, rows, state.shape(0), name);
}

void check_gated(const mx::array& decay, const mx::array& x, const mx::array& state,
                 const RecurrentBatch& batch) {
  constexpr const char* name = "gated_recurrence";
  check(x.ndim() == 2 && state.ndim() == 2 && is(x, x.shape()) && is(decay, x.shape()) &&
            is(state, {state.shape(0), x.shape(1)}),
        name, "f32 decay and x [T, C], state [slots, C]");
  check_batch(batch, x.shape(0), state.shape(0), name);
}

void check_linear_recurrence(const LinearRecurrenceInputs& inputs, const mx::array& state,
                             const RecurrentBatch& batch) {
  constexpr const char* name = "linear_recurrence";
  check(inputs.q.ndim() == 3 && inputs.v.ndim() == 3 && state.ndim() == 2, name,
        "q and k [T, Hk, K], v [T, H, V] and state [slots, H K stride(V)]");
  const int rows = inputs.q.shape(0);
  const int keys = inputs.q.shape(2);
  const int heads = inputs.v.shape(1);
  const int values = inputs.v.shape(2);
  check(is(inputs.q, inputs.q.shape()) && is(inputs.k, inputs.q.shape()) &&
            is(inputs.v, {rows, heads, values}) && inputs.q.shape(1) > 0 &&
            heads % inputs.q.shape(1) == 0,
        name, "f32 q and k [T, Hk, K] and v [T, H, V] with H a multiple of Hk");
  check((is(inputs.decay, {rows, heads}) || is(inputs.decay, {rows, heads, keys})) &&
            (!inputs.beta || is(*inputs.beta, {rows, heads})) &&
            is(state, {state.shape(0), heads * keys * recurrent_stride(values)}),
        name, "f32 decay [T, H] or [T, H, K], beta [T, H] and state [slots, H K stride(V)]");
  check_batch(batch, rows, state.shape(0), name);
}

}  // namespace espalier::kernels
