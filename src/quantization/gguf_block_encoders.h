#pragma once

#include "arrays/gguf_blocks.h"

namespace espalier::quantization {

// Each encodes the values of one quantization block, which must be finite.
void encode(const float* values, arrays::BlockQ4_0& block);
void encode(const float* values, arrays::BlockQ4_1& block);
void encode(const float* values, arrays::BlockQ5_0& block);
void encode(const float* values, arrays::BlockQ5_1& block);
void encode(const float* values, arrays::BlockQ8_0& block);
void encode(const float* values, arrays::BlockQ4_K& block);
void encode(const float* values, arrays::BlockQ5_K& block);
void encode(const float* values, arrays::BlockQ6_K& block);
void encode(const float* values, arrays::BlockIQ4_NL& block);
void encode(const float* values, arrays::BlockIQ4_XS& block);

}  // namespace espalier::quantization
