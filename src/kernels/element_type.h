#pragma once

#include <stdexcept>

#include "kernels/element.h"
#include "mlx/mlx.h"

namespace espalier::kernels {

/// The element type of activations in `dtype`; an internal error for anything else.
inline ElementType element_type(mlx::core::Dtype dtype) {
  if (dtype == mlx::core::float32) {
    return ElementType::f32;
  }
  if (dtype == mlx::core::float16) {
    return ElementType::f16;
  }
  if (dtype == mlx::core::bfloat16) {
    return ElementType::bf16;
  }
  throw std::invalid_argument("[element_type] expected f32, f16 or bf16");
}

}  // namespace espalier::kernels
