#pragma once

#include <cstdint>
#include <cstring>

#include "arrays/gguf_blocks.h"

namespace espalier::quantization {

inline float half_to_float(std::uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, sizeof half);
  return static_cast<float>(half);
}

// Each writes the values of one quantization block. The order of multiplications is part of the
// format: other orders round differently.
void decode(const arrays::BlockQ4_0& block, float* values);
void decode(const arrays::BlockQ4_1& block, float* values);
void decode(const arrays::BlockQ5_0& block, float* values);
void decode(const arrays::BlockQ5_1& block, float* values);
void decode(const arrays::BlockQ8_0& block, float* values);
void decode(const arrays::BlockQ2_K& block, float* values);
void decode(const arrays::BlockQ3_K& block, float* values);
void decode(const arrays::BlockQ4_K& block, float* values);
void decode(const arrays::BlockQ5_K& block, float* values);
void decode(const arrays::BlockQ6_K& block, float* values);
void decode(const arrays::BlockQ8_K& block, float* values);
void decode(const arrays::BlockTQ1_0& block, float* values);
void decode(const arrays::BlockTQ2_0& block, float* values);
void decode(const arrays::BlockIQ1_S& block, float* values);
void decode(const arrays::BlockIQ1_M& block, float* values);
void decode(const arrays::BlockIQ2_XXS& block, float* values);
void decode(const arrays::BlockIQ2_XS& block, float* values);
void decode(const arrays::BlockIQ2_S& block, float* values);
void decode(const arrays::BlockIQ3_XXS& block, float* values);
void decode(const arrays::BlockIQ3_S& block, float* values);
void decode(const arrays::BlockIQ4_NL& block, float* values);
void decode(const arrays::BlockIQ4_XS& block, float* values);
void decode(const arrays::BlockMXFP4& block, float* values);
void decode(const arrays::BlockNVFP4& block, float* values);

}  // namespace espalier::quantization
