#pragma once

#include "kernels/element.h"

namespace espalier::kernels {

/// Rows [rows, columns] to normalize, without gaps.
struct NormRows {
  const void* x;
  const void* residual;  // null: none
  void* out;
  ElementType type;  // of all three
  const float* weight;
  int rows;
  int columns;
  float eps;
};

/// The kernel of `rms_norm` for one instruction set; `scratch` holds columns + 16 floats.
using NormCpu = void (*)(const NormRows& rows, float* scratch);

void norm_cpu_scalar(const NormRows& rows, float* scratch);
void norm_cpu_avx2(const NormRows& rows, float* scratch);
void norm_cpu_avx512(const NormRows& rows, float* scratch);

/// That of `instruction_set()`.
NormCpu norm_cpu();

}  // namespace espalier::kernels
