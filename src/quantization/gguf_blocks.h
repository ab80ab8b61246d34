#pragma once

#include <cstddef>
#include <span>

#include "arrays/tensor_file.h"

namespace espalier::quantization {

/// Whether `dequantize` knows this type: f32, f16, bf16 and every GGUF block type but q8_1, which
/// is not stored in files.
bool can_dequantize(arrays::StorageType type);

/// The f32 values of whole quantization blocks, one after the other: the reference for every other
/// reader of these types, bit-equal to the `gguf` Python package. `values` is as long as `bytes`
/// says. Throws `std::invalid_argument` for an unknown type or lengths that do not fit.
void dequantize(arrays::StorageType type, std::span<const std::byte> bytes,
                std::span<float> values);

}  // namespace espalier::quantization
