#pragma once

#include "kernels/element_row.h"
#include "kernels/recurrence_cpu.h"
#include "kernels/vector_math.h"

namespace espalier::kernels {

/// Rows are taken one after the other in every kernel here, and lanes are channels or value columns
/// that never meet, so the bits depend neither on how a sequence was cut nor on the vector width.

/// Calls `use(i, lanes)` for the vectors of [0, n); the last one may have fewer lanes.
template <class V, class Use>
inline void for_vectors(int n, const Use& use) {
  for (int i = 0; i < n; i += V::width) {
    use(i, n - i < V::width ? n - i : V::width);
  }
}

template <class V>
inline typename V::Float load_lanes(const float* p, int lanes) {
  if (lanes == V::width) {
    return V::load(p);
  }
  float tail[V::width];
  load_row<V>(p, lanes, tail);
  return V::load(tail);
}

template <class V>
inline void store_lanes(float* p, int lanes, typename V::Float x) {
  if (lanes == V::width) {
    V::store(p, x);
    return;
  }
  float tail[V::width];
  V::store(tail, x);
  for (int j = 0; j < lanes; ++j) {
    p[j] = tail[j];
  }
}

/// One vector of channels through all rows, the taps' inputs in a window that moves along.
template <class V>
inline void convolve_lanes(const ConvolutionTask& task, int channel, int lanes) {
  using Float = typename V::Float;
  Float window[most_taps];
  Float weight[most_taps];
  const int kept = task.taps - 1;
  const auto at = [&](int row) { return static_cast<long>(row) * task.row_stride + channel; };
  for (int tap = 0; tap < task.taps; ++tap) {
    weight[tap] = load_lanes<V>(task.weight + at(tap), lanes);
  }
  for (int i = 0; i < kept; ++i) {
    window[i] = task.starts ? V::zero() : load_lanes<V>(task.state + at(i), lanes);
  }
  const Float bias = task.bias == nullptr ? V::zero() : load_lanes<V>(task.bias + channel, lanes);
  for (int row = 0; row < task.rows; ++row) {
    window[kept] = load_lanes<V>(task.x + at(row), lanes);
    Float sum = bias;
    for (int tap = 0; tap < task.taps; ++tap) {
      sum = V::fma(weight[tap], window[tap], sum);
    }
    store_lanes<V>(task.out + at(row), lanes, task.silu ? silu<V>(sum) : sum);
    for (int i = 0; i < kept; ++i) {
      window[i] = window[i + 1];
    }
  }
  for (int i = 0; i < kept; ++i) {
    store_lanes<V>(task.state + at(i), lanes, window[i]);
  }
}

template <class V>
inline void convolution_task(const ConvolutionTask& task) {
  for_vectors<V>(task.channels,
                 [&](int channel, int lanes) { convolve_lanes<V>(task, channel, lanes); });
}

/// ln(1 + e^x) as max(x, 0) + log1p(e^-|x|), where log1p(y) = 2 atanh(y / (2 + y)) by its series:
/// absolute error below 3e-7.
template <class V>
inline typename V::Float softplus(typename V::Float x) {
  const auto y = exp<V>(V::sub(V::zero(), V::abs(x)));
  const auto z = V::div(y, V::add(y, V::set(2.0F)));
  const auto square = V::mul(z, z);
  auto p = V::set(1.0F / 15.0F);
  p = V::fma(p, square, V::set(1.0F / 13.0F));
  p = V::fma(p, square, V::set(1.0F / 11.0F));
  p = V::fma(p, square, V::set(1.0F / 9.0F));
  p = V::fma(p, square, V::set(1.0F / 7.0F));
  p = V::fma(p, square, V::set(1.0F / 5.0F));
  p = V::fma(p, square, V::set(1.0F / 3.0F));
  p = V::fma(p, square, V::set(1.0F));
  return V::fma(V::add(p, p), z, V::max(V::zero(), x));
}

template <class V>
inline void scan_lanes(const SelectiveTask& task, int channel, int lanes) {
  const auto at = [&](int row) { return static_cast<long>(row) * task.row_stride + channel; };
  const auto skip = load_lanes<V>(task.skip + channel, lanes);
  const auto bias =
      task.step_bias == nullptr ? V::zero() : load_lanes<V>(task.step_bias + channel, lanes);
  float* state = task.state + channel;
  if (task.starts) {
    for (int n = 0; n < task.states; ++n) {
      V::store(state + static_cast<long>(n) * task.state_stride, V::zero());
    }
  }
  for (int row = 0; row < task.rows; ++row) {
    const auto x = load_lanes<V>(task.x + at(row), lanes);
    const auto step = softplus<V>(V::add(load_lanes<V>(task.time_step + at(row), lanes), bias));
    const auto input = V::mul(step, x);
    const float* b = task.b + static_cast<long>(row) * task.bc_stride;
    const float* c = task.c + static_cast<long>(row) * task.bc_stride;
    auto sum = V::mul(skip, x);
    for (int n = 0; n < task.states; ++n) {
      float* h = state + static_cast<long>(n) * task.state_stride;
      const auto decay = exp<V>(V::mul(step, load_lanes<V>(task.a + at(n), lanes)));
      const auto next = V::fma(V::set(b[n]), input, V::mul(decay, V::load(h)));
      V::store(h, next);
      sum = V::fma(V::set(c[n]), next, sum);
    }
    store_lanes<V>(task.out + at(row), lanes, sum);
  }
}

template <class V>
inline void selective_task(const SelectiveTask& task) {
  for_vectors<V>(task.channels,
                 [&](int channel, int lanes) { scan_lanes<V>(task, channel, lanes); });
}

template <class V>
inline void gated_task(const GatedTask& task) {
  for_vectors<V>(task.channels, [&](int channel, int lanes) {
    auto h = task.starts ? V::zero() : load_lanes<V>(task.state + channel, lanes);
    for (int row = 0; row < task.rows; ++row) {
      const long at = static_cast<long>(row) * task.row_stride + channel;
      h = V::fma(load_lanes<V>(task.decay + at, lanes), h, load_lanes<V>(task.x + at, lanes));
      store_lanes<V>(task.out + at, lanes, h);
    }
    store_lanes<V>(task.state + channel, lanes, h);
  });
}

/// One row: S = decay * S + k (x) d, out = q S, where d is v, or beta * (v - k (decay * S)) in a
/// delta rule; `count` vectors of columns.
template <class V, int count>
inline void recur(const LinearRecurrenceTask& task, int row, const float* v, float* out) {
  using Float = typename V::Float;
  const float* q = task.q + static_cast<long>(row) * task.q_stride;
  const float* k = task.k + static_cast<long>(row) * task.k_stride;
  const float* decay = task.decay + static_cast<long>(row) * task.decay_stride;
  Float d[count];
  for (int i = 0; i < count; ++i) {
    d[i] = V::load(v + i * V::width);
  }
  if (task.beta != nullptr) {
    Float held[count];
    for (int i = 0; i < count; ++i) {
      held[i] = V::zero();
    }
    for (int key = 0; key < task.keys; ++key) {
      const float* state = task.state + static_cast<long>(key) * task.state_stride;
      const Float factor = V::set(decay[task.decay_per_key ? key : 0]);
      const Float weight = V::set(k[key]);
      for (int i = 0; i < count; ++i) {
        held[i] = V::fma(weight, V::mul(factor, V::load(state + i * V::width)), held[i]);
      }
    }
    const Float beta = V::set(task.beta[static_cast<long>(row) * task.beta_stride]);
    for (int i = 0; i < count; ++i) {
      d[i] = V::mul(beta, V::sub(d[i], held[i]));
    }
  }
  Float sum[count];
  for (int i = 0; i < count; ++i) {
    sum[i] = V::zero();
  }
  for (int key = 0; key < task.keys; ++key) {
    float* state = task.state + static_cast<long>(key) * task.state_stride;
    const Float factor = V::set(decay[task.decay_per_key ? key : 0]);
    const Float weight = V::set(k[key]);
    const Float query = V::set(q[key]);
    for (int i = 0; i < count; ++i) {
      const Float next = V::fma(weight, d[i], V::mul(factor, V::load(state + i * V::width)));
      V::store(state + i * V::width, next);
      sum[i] = V::fma(query, next, sum[i]);
    }
  }
  for (int i = 0; i < count; ++i) {
    V::store(out + i * V::width, sum[i]);
  }
}

/// `columns` counts whole sixteens; v and out are copied, since their last columns may be missing.
template <class V, int columns>
inline void recur_rows(const LinearRecurrenceTask& task) {
  float v[columns];
  float out[columns];
  for (int row = 0; row < task.rows; ++row) {
    const long at = static_cast<long>(row) * task.v_stride;
    for (int i = 0; i < columns; i += V::width) {
      V::store(v + i, V::zero());
    }
    load_row<V>(task.v + at, task.columns, v);
    recur<V, columns / V::width>(task, row, v, out);
    store_row<V>(out, task.columns, task.out + at);
  }
}

template <class V>
inline void linear_task(const LinearRecurrenceTask& task) {
  const int padded = (task.columns + 15) / 16 * 16;
  if (task.starts) {
    for (int key = 0; key < task.keys; ++key) {
      for (int i = 0; i < padded; i += V::width) {
        V::store(task.state + static_cast<long>(key) * task.state_stride + i, V::zero());
      }
    }
  }
  switch (padded) {
    case 16:
      return recur_rows<V, 16>(task);
    case 32:
      return recur_rows<V, 32>(task);
    case 48:
      return recur_rows<V, 48>(task);
    default:
      return recur_rows<V, 64>(task);
  }
}

template <class V>
inline const RecurrenceCpu& recurrence_table() {
  static constexpr RecurrenceCpu table = {.convolution = convolution_task<V>,
                                          .selective = selective_task<V>,
                                          .gated = gated_task<V>,
                                          .linear = linear_task<V>};
  return table;
}

}  // namespace espalier::kernels
