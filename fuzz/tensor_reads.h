#pragma once

#include <cstddef>
#include <cstdlib>

#include "arrays/tensor_file.h"

namespace espalier::fuzz {

/// Keeps the compiler from dropping the reads.
inline volatile std::byte reads_end_here;

/// Reads every byte of every tensor, so that a view past the mapping shows, and looks each up by
/// name.
inline void read_tensors(const arrays::TensorFile& file) {
  for (const arrays::TensorView& tensor : file.tensors()) {
    if (file.find(tensor.name) != &tensor) {
      std::abort();
    }
    for (std::byte value : tensor.bytes) {
      reads_end_here = value;
    }
  }
}

}  // namespace espalier::fuzz
