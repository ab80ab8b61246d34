#pragma once

namespace espalier::kernels {

/// Adds the 16 partial sums in a fixed tree: the same bits in every instruction set.
template <class V>
inline float add_partial_sums(const typename V::Float (&partial)[16 / V::width]) {
  float sums[16];
  for (int part = 0; part < 16 / V::width; ++part) {
    V::store(sums + part * V::width, partial[part]);
  }
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) {
      sums[i] += sums[i + half];
    }
  }
  return sums[0];
}

/// 1 / sqrt(mean(x^2) + eps) of n elements, in f32: element i goes to partial sum i mod 16 by fused
/// multiply-add, then the sums are added in a fixed tree.
template <class V, class X>
inline float rms_norm_scale(const X* x, int n, float eps) {
  typename V::Float partial[16 / V::width];
  for (auto& sum : partial) {
    sum = V::zero();
  }
  const auto accumulate = [&partial](const X* values) {
    for (int part = 0; part < 16 / V::width; ++part) {
      const auto value = V::load(values + part * V::width);
      partial[part] = V::fma(value, value, partial[part]);
    }
  };
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    accumulate(x + i);
  }
  if (i < n) {
    X tail[16] = {};
    for (int j = 0; i + j < n; ++j) {
      tail[j] = x[i + j];
    }
    accumulate(tail);
  }
  const float mean = add_partial_sums<V>(partial) / static_cast<float>(n);
  return 1.0F / __builtin_sqrtf(mean + eps);
}

/// One vector of a normalized row: (x * scale) * weight, in this order.
template <class V, class X>
inline typename V::Float rms_norm_apply(const X* x, const float* weight, typename V::Float scale) {
  return V::mul(V::mul(V::load(x), scale), V::load(weight));
}

}  // namespace espalier::kernels
