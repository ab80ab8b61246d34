#pragma once

#include "models/config_reader.h"
#include "quantization/stored_matrix.h"

namespace espalier::models {

/// What `quantization` (MLX) or `quantization_config` (Hugging Face) say of a checkpoint's weights.
/// Throws `LoadError` naming the key of a method or setting that is not supported.
quantization::WeightSchemes read_weight_schemes(const ConfigReader& config);

}  // namespace espalier::models
