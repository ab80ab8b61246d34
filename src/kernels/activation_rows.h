#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/linear_cpu.h"
#include "kernels/rms_norm_row.h"

namespace espalier::kernels {

/// Calls sink(i, vector, lanes) for each vector of the row from element i on, normalized if asked
/// for; the last one may have fewer lanes, the others being 0.
template <class V, class X, class Sink>
inline void for_each_vector(const ActivationRow& row, Sink&& sink) {
  const auto* x = static_cast<const X*>(row.data);
  const bool normalize = row.norm_weight != nullptr;
  const auto scale = V::set(normalize ? rms_norm_scale<V>(x, row.columns, row.norm_eps) : 1.0F);
  const auto value = [&](const X* elements, const float* weights) {
    return normalize ? rms_norm_apply<V>(elements, weights, scale) : V::load(elements);
  };
  int i = 0;
  for (; i + V::width <= row.columns; i += V::width) {
    sink(i, value(x + i, row.norm_weight + (normalize ? i : 0)), V::width);
  }
  if (i < row.columns) {
    X elements[V::width] = {};
    float weights[V::width] = {};
    for (int j = 0; i + j < row.columns; ++j) {
      elements[j] = x[i + j];
      weights[j] = normalize ? row.norm_weight[i + j] : 0.0F;
    }
    sink(i, value(elements, weights), row.columns - i);
  }
}

template <class V>
void convert_row(const ActivationRow& row, float* values) {
  with_element(row.type, [&]<class X>(const X*) {
    for_each_vector<V, X>(row, [&](int i, typename V::Float vector, int lanes) {
      if (lanes == V::width) {
        V::store(values + i, vector);
      } else {
        float tail[V::width];
        V::store(tail, vector);
        for (int j = 0; j < lanes; ++j) {
          values[i + j] = tail[j];
        }
      }
    });
  });
}

/// Stores values first .. first + V::width of a block where `WideActivationBlock` wants them.
template <class V>
inline void store_swapped_words(WideActivationBlock& block, int first, typename V::Int values) {
  std::int32_t words[V::width];
  V::store_int(words, values);
  for (int i = 0; i < V::width; ++i) {
    constexpr int places[4] = {0, 2, 1, 3};
    const int index = first + i;
    block.values[index / 4 * 4 + places[index % 4]] = static_cast<std::int16_t>(words[i]);
  }
}

/// The whole number that each width of activations spans on either side of zero.
template <class Block>
inline constexpr float largest_activation =
    std::is_same_v<Block, ActivationBlock> ? 127.0F : 32512.0F;

/// Quantizes 32 values. Rows below 1e-30 become 0, so that no reciprocal overflows.
template <class V, class Block>
inline void quantize_block(const typename V::Float (&x)[block_inputs / V::width], Block& block) {
  constexpr int vectors = block_inputs / V::width;
  constexpr float limit = largest_activation<Block>;
  // As integers, magnitudes order like floats with NaN on top, so a NaN reaches the result.
  auto largest = V::as_int(V::abs(x[0]));
  for (int i = 1; i < vectors; ++i) {
    largest = V::max_int(largest, V::as_int(V::abs(x[i])));
  }
  const std::int32_t bits = V::reduce_max(largest);
  float magnitude;
  __builtin_memcpy(&magnitude, &bits, sizeof magnitude);
  const bool tiny = magnitude < 1e-30F;
  block.scale = tiny ? 0.0F : magnitude / limit;
  const auto inverse = V::set(tiny ? 0.0F : limit / magnitude);
  const auto magic = V::set(12582912.0F);  // 1.5 * 2^23: adding it rounds to a whole number
  typename V::Int half_sums[2] = {V::set_int(0), V::set_int(0)};
  for (int i = 0; i < vectors; ++i) {
    const auto clamped = V::min(V::max(V::mul(x[i], inverse), V::set(-limit)), V::set(limit));
    const auto whole = V::to_int(V::sub(V::add(clamped, magic), magic));
    if constexpr (std::is_same_v<Block, ActivationBlock>) {
      V::store_bytes(block.values + i * V::width, whole);
    } else {
      store_swapped_words<V>(block, i * V::width, whole);
    }
    auto& sum = half_sums[i * V::width / 16];
    sum = V::add_int(sum, whole);
  }
  const std::int32_t first = V::reduce_add(half_sums[0]);
  const std::int32_t last = V::reduce_add(half_sums[1]);
  using HalfSum = std::remove_reference_t<decltype(block.half_sums[0])>;
  block.half_sums[0] = static_cast<HalfSum>(first);
  block.half_sums[1] = static_cast<HalfSum>(last);
  block.sum = first + last;
  block.scaled_sum = block.scale * static_cast<float>(block.sum);
}

template <class V, class Block>
void quantize_row(const ActivationRow& row, Block* blocks) {
  with_element(row.type, [&]<class X>(const X*) {
    typename V::Float x[block_inputs / V::width];
    for_each_vector<V, X>(row, [&](int i, typename V::Float vector, int) {
      x[i % block_inputs / V::width] = vector;
      if ((i + V::width) % block_inputs == 0) {
        quantize_block<V>(x, blocks[i / block_inputs]);
      }
    });
  });
}

}  // namespace espalier::kernels
