#pragma once

#include "layers/linear.h"
#include "layers/weight_reader.h"
#include "models/config_reader.h"
#include "quantization/stored_matrix.h"

namespace espalier::models {

/// What `quantization` (MLX) or `quantization_config` (Hugging Face) say of a checkpoint's weights.
/// Throws `LoadError` naming the key of a method or setting that is not supported.
quantization::WeightSchemes read_weight_schemes(const ConfigReader& config);

/// Throws `LoadError` when products with trellis-coded weights are asked to be something special,
/// but `weights` had none.
void check_trellis_contract(layers::TrellisContract contract, const layers::WeightReader& weights);

}  // namespace espalier::models
