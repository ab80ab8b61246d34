#pragma once

#include <cstdint>

namespace espalier::kernels {

/// The 16-bit types as bits; the lanes of each instruction set convert them.
struct Half {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};

/// The types that activations come in.
enum class ElementType { f32, f16, bf16 };

/// Calls `function` with a null `const T*` of the element type, to choose a template instance.
template <class Function>
inline auto with_element(ElementType type, Function&& function) {
  switch (type) {
    case ElementType::f16:
      return function(static_cast<const Half*>(nullptr));
    case ElementType::bf16:
      return function(static_cast<const Bfloat16*>(nullptr));
    default:
      return function(static_cast<const float*>(nullptr));
  }
}

}  // namespace espalier::kernels
