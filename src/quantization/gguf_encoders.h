#pragma once

#include <cstddef>
#include <span>

#include "arrays/tensor_file.h"

namespace espalier::quantization {

/// Whether `quantize` knows this type: f32, f16, bf16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, the K types of
/// 4 to 6 bits, IQ4_NL and IQ4_XS.
bool can_quantize(arrays::StorageType type);

/// Encodes whole quantization blocks. `bytes` is as long as the values say. The types that the
/// `gguf` Python package encodes come out bit-equal to it; the others minimise the squared error,
/// larger values counting more. The values must be finite. Throws `std::invalid_argument` for an
/// unknown type or lengths that do not fit.
void quantize(arrays::StorageType type, std::span<const float> values, std::span<std::byte> bytes);

}  // namespace espalier::quantization
