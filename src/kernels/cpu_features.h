#pragma once

#include <optional>
#include <string_view>

namespace espalier::kernels {

/// The instruction sets that kernels are compiled for, from least to most. `avx2` includes FMA and
/// F16C; `avx512` means F, BW, VL, DQ, VNNI, BF16 and VBMI (Zen 4 and Sapphire Rapids on). Results
/// are the same bits in each.
enum class InstructionSet { scalar, avx2, avx512 };

/// Whether this processor and operating system can run it.
bool supports(InstructionSet set);

/// The set that kernels use: the best supported one, unless the environment variable
/// `ESPALIER_INSTRUCTION_SET` (scalar, avx2, avx512) names a lesser one or a test forced one.
InstructionSet instruction_set();

/// Makes kernels use `set` (which must be supported), or the default again when empty. For tests;
/// not to be called while kernels run.
void force_instruction_set(std::optional<InstructionSet> set);

std::string_view to_string(InstructionSet set);

/// Whether weights that are read once should be asked for ahead of use. Not where the processor
/// does it better by itself: AMD's with AVX-512 (see `prefetch_distance`).
bool fetches_weights_ahead();

}  // namespace espalier::kernels
