#pragma once

#include "kernels/element.h"

namespace espalier::kernels {

/// The kinds of `ElementFunction`, in its order.
enum class ElementKind {
  silu,
  gelu_tanh,
  gelu_erf,
  gelu_quick,
  relu,
  relu_squared,
  sigmoid,
  tanh,
  soft_cap,
  xielu,
  clamped_swish,
};

/// Rows at work, without gaps: out [rows, columns] = function(x) * factor.
struct ElementRows {
  ElementKind kind;
  float constants[4];
  const void* x;       // [rows, columns], or [rows, 1] with x_columns 1
  const void* factor;  // the same with factor_columns; null: none
  void* out;
  ElementType type;  // of all three
  int rows;
  int columns;
  int x_columns;
  int factor_columns;
};

/// The kernel of `elementwise` for one instruction set; `scratch` holds 2 * (columns + 16) floats.
using ElementwiseCpu = void (*)(const ElementRows& rows, float* scratch);

void elementwise_cpu_scalar(const ElementRows& rows, float* scratch);
void elementwise_cpu_avx2(const ElementRows& rows, float* scratch);
void elementwise_cpu_avx512(const ElementRows& rows, float* scratch);

/// That of `instruction_set()`.
ElementwiseCpu elementwise_cpu();

}  // namespace espalier::kernels
