#pragma once

#include "kernels/element_row.h"
#include "kernels/norm_cpu.h"
#include "kernels/rms_norm_row.h"

namespace espalier::kernels {

/// x = x / rms(x) * weight over n elements of f32, in place; writes x up to whole vectors.
template <class V>
inline void rms_norm_in_place(float* x, const float* weight, int n, float eps) {
  const auto scale = V::set(rms_norm_scale<V>(x, n, eps));
  int i = 0;
  for (; i + V::width <= n; i += V::width) {
    V::store(x + i, rms_norm_apply<V>(x + i, weight + i, scale));
  }
  if (i < n) {
    float tail[V::width];
    load_row<V>(weight + i, n - i, tail);
    V::store(x + i, rms_norm_apply<V>(x + i, tail, scale));
  }
}

template <class V, class X>
inline void norm_row(const NormRows& rows, long first, float* scratch) {
  const int n = rows.columns;
  load_row<V>(static_cast<const X*>(rows.x) + first, n, scratch);
  rms_norm_in_place<V>(scratch, rows.weight, n, rows.eps);
  if (rows.residual != nullptr) {
    const X* residual = static_cast<const X*>(rows.residual) + first;
    int i = 0;
    for (; i + V::width <= n; i += V::width) {
      V::store(scratch + i, V::add(V::load(scratch + i), V::load(residual + i)));
    }
    if (i < n) {
      float tail[V::width];
      load_row<V>(residual + i, n - i, tail);
      V::store(scratch + i, V::add(V::load(scratch + i), V::load(tail)));
    }
  }
  store_row<V>(scratch, n, static_cast<X*>(rows.out) + first);
}

template <class V>
inline void norm_rows(const NormRows& rows, float* scratch) {
  with_element(rows.type, [&]<class X>(const X*) {
    for (int row = 0; row < rows.rows; ++row) {
      norm_row<V, X>(rows, static_cast<long>(row) * rows.columns, scratch);
    }
  });
}

}  // namespace espalier::kernels
