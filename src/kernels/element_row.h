#pragma once

#include "kernels/element.h"

namespace espalier::kernels {

/// Rows of any length as f32: whole vectors, then a tail through a small copy.

/// target [0, n) = source; elements up to the next multiple of `V::width` become 0.
template <class V, class X>
inline void load_row(const X* source, int n, float* target) {
  int i = 0;
  for (; i + V::width <= n; i += V::width) {
    V::store(target + i, V::load(source + i));
  }
  if (i < n) {
    X tail[V::width] = {};
    for (int j = 0; i + j < n; ++j) {
      tail[j] = source[i + j];
    }
    V::store(target + i, V::load(tail));
  }
}

/// target [0, n) = source, rounded to nearest even; reads `source` to the next multiple of
/// `V::width`.
template <class V, class X>
inline void store_row(const float* source, int n, X* target) {
  int i = 0;
  for (; i + V::width <= n; i += V::width) {
    V::store(target + i, V::load(source + i));
  }
  if (i < n) {
    X tail[V::width];
    V::store(tail, V::load(source + i));
    for (int j = 0; i + j < n; ++j) {
      target[i + j] = tail[j];
    }
  }
}

}  // namespace espalier::kernels
