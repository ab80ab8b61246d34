#pragma once

#include "kernels/element_row.h"
#include "kernels/elementwise_cpu.h"
#include "kernels/vector_math.h"

namespace espalier::kernels {

template <class V>
inline typename V::Float xielu(typename V::Float x, const float* c) {
  const auto linear = V::mul(x, V::set(c[2]));
  const auto positive = V::fma(V::mul(x, x), V::set(c[0]), linear);
  const auto grown = V::sub(exp<V>(V::min(x, V::set(c[3]))), V::set(1.0F));
  const auto negative = V::fma(V::sub(grown, x), V::set(c[1]), linear);
  return V::select_greater(x, V::zero(), positive, negative);
}

template <class V>
inline typename V::Float apply_element(ElementKind kind, typename V::Float x, const float* c) {
  switch (kind) {
    case ElementKind::silu:
      return silu<V>(x);
    case ElementKind::gelu_tanh:
      return gelu_tanh<V>(x);
    case ElementKind::gelu_erf:
      return gelu_erf<V>(x);
    case ElementKind::gelu_quick:
      return V::mul(x, sigmoid<V>(V::mul(x, V::set(1.702F))));
    case ElementKind::relu:
      return V::max(x, V::zero());
    case ElementKind::relu_squared: {
      const auto positive = V::max(x, V::zero());
      return V::mul(positive, positive);
    }
    case ElementKind::sigmoid:
      return sigmoid<V>(x);
    case ElementKind::tanh:
      return tanh<V>(x);
    case ElementKind::soft_cap: {
      const auto cap = V::set(c[0]);
      return V::mul(cap, tanh<V>(V::div(x, cap)));
    }
    case ElementKind::xielu:
      return xielu<V>(x, c);
    case ElementKind::clamped_swish: {
      const auto low = V::min(x, V::set(c[1]));
      return V::mul(low, sigmoid<V>(V::mul(low, V::set(c[0]))));
    }
  }
  return x;
}

template <class V>
inline typename V::Float prepare_factor(ElementKind kind, typename V::Float factor,
                                        const float* c) {
  if (kind != ElementKind::clamped_swish) {
    return factor;
  }
  const auto clamped = V::max(V::min(factor, V::set(c[1])), V::set(-c[1]));
  return V::add(clamped, V::set(1.0F));
}

/// One operand's row in f32: its elements, or its one element repeated.
template <class V, class X>
inline void load_operand(const void* operand, int row, int own_columns, int columns,
                         float* target) {
  const X* source = static_cast<const X*>(operand) + static_cast<long>(row) * own_columns;
  if (own_columns == columns) {
    load_row<V>(source, columns, target);
    return;
  }
  float first[V::width];
  load_row<V>(source, 1, first);
  for (int i = 0; i < columns; i += V::width) {
    V::store(target + i, V::set(first[0]));
  }
}

template <class V>
inline void elementwise_rows(const ElementRows& rows, float* scratch) {
  with_element(rows.type, [&]<class X>(const X*) {
    float* x = scratch;
    float* factor = scratch + rows.columns + 16;
    for (int row = 0; row < rows.rows; ++row) {
      load_operand<V, X>(rows.x, row, rows.x_columns, rows.columns, x);
      if (rows.factor != nullptr) {
        load_operand<V, X>(rows.factor, row, rows.factor_columns, rows.columns, factor);
      }
      for (int i = 0; i < rows.columns; i += V::width) {
        auto value = apply_element<V>(rows.kind, V::load(x + i), rows.constants);
        if (rows.factor != nullptr) {
          value = V::mul(value, prepare_factor<V>(rows.kind, V::load(factor + i), rows.constants));
        }
        V::store(x + i, value);
      }
      store_row<V>(x, rows.columns,
                   static_cast<X*>(rows.out) + static_cast<long>(row) * rows.columns);
    }
  });
}

}  // namespace espalier::kernels
