#pragma once

#include <cstddef>
#include <cstdlib>

#include "arrays/tensor_file.h"

namespace espalier::fuzz {

/// Reads every byte of every tensor, so that a view past the mapping shows, and looks each up by
/// name.
inline void read_tensors(const arrays::TensorFile& file) {
  static volatile std::byte sink;
  for (const arrays::TensorView& tensor : file.tensors()) {
    if (file.find(tensor.name) != &tensor) {
      std::abort();
    }
    for (std::byte value : tensor.bytes) {
      sink = value;
    }
  }
}

}  // namespace espalier::fuzz
