#pragma once

#include "conversion/source.h"

namespace espalier::conversion {

/// Whether a folder has `params.json` in place of `config.json`, as Meta and Mistral publish their
/// own checkpoints.
bool is_original_layout(const std::filesystem::path& folder);

/// Gives such a source the configuration, names and order of rows of Hugging Face. Its tensors are
/// plain. Throws `LoadError` naming a setting or tensor that has no counterpart.
void use_hugging_face_layout(Source& source);

/// Parts gpt-oss's experts, whose gate and up rows take turns in one tensor of MXFP4 codes, as MLX
/// has them. Leaves other sources alone.
void part_packed_experts(Source& source);

}  // namespace espalier::conversion
