#pragma once

#include <string>
#include <vector>

#include "conversion/source.h"

namespace espalier::conversion {

/// Adds the tensors of a folder whose weights one of Hugging Face's methods quantized (FP8, GPTQ,
/// AWQ, compressed-tensors, NVFP4, NF4): each matrix as its values, under the name that it would
/// have as plain numbers. `settings` is `quantization_config`. Throws `LoadError` naming what is
/// missing, misshapen or not known.
void add_scheme_tensors(Source& source, const nlohmann::ordered_json& settings);

}  // namespace espalier::conversion
