#pragma once

#include "arrays/gguf_blocks.h"
#include "kernels/block_codes.h"

namespace espalier::kernels {

// Each takes 32 weights out of a GGUF block, those from 32 `index` on.
void read(const arrays::BlockQ4_0& block, int index, BlockCodes& result);
void read(const arrays::BlockQ4_1& block, int index, BlockCodes& result);
void read(const arrays::BlockQ5_0& block, int index, BlockCodes& result);
void read(const arrays::BlockQ5_1& block, int index, BlockCodes& result);
void read(const arrays::BlockQ8_0& block, int index, BlockCodes& result);
void read(const arrays::BlockQ2_K& block, int index, BlockCodes& result);
void read(const arrays::BlockQ3_K& block, int index, BlockCodes& result);
void read(const arrays::BlockQ4_K& block, int index, BlockCodes& result);
void read(const arrays::BlockQ5_K& block, int index, BlockCodes& result);
void read(const arrays::BlockQ6_K& block, int index, BlockCodes& result);
void read(const arrays::BlockQ8_K& block, int index, BlockCodes& result);
void read(const arrays::BlockTQ1_0& block, int index, BlockCodes& result);
void read(const arrays::BlockTQ2_0& block, int index, BlockCodes& result);
void read(const arrays::BlockIQ1_S& block, int index, BlockCodes& result);
void read(const arrays::BlockIQ1_M& block, int index, BlockCodes& result);
void read(const arrays::BlockIQ2_XXS& block, int index, BlockCodes& result);
void read(const arrays::BlockIQ2_XS& block, int index, BlockCodes& result);
void read(const arrays::BlockIQ2_S& block, int index, BlockCodes& result);
void read(const arrays::BlockIQ3_XXS& block, int index, BlockCodes& result);
void read(const arrays::BlockIQ3_S& block, int index, BlockCodes& result);
void read(const arrays::BlockIQ4_NL& block, int index, BlockCodes& result);
void read(const arrays::BlockIQ4_XS& block, int index, BlockCodes& result);
void read(const arrays::BlockMXFP4& block, int index, BlockCodes& result);
void read(const arrays::BlockNVFP4& block, int index, BlockCodes& result);

}  // namespace espalier::kernels
