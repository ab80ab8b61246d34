#pragma once

#include "layers/weight_reader.h"
#include "models/descriptor.h"

namespace espalier::models {

/// Some checkpoints leave out what the names of all tensors but the head begin with ("model.",
/// "transformer."); those of models that also see or hear put more before it. Gives the names the
/// beginning that the file has.
void find_tensor_prefix(TensorNames& names, const layers::WeightReader& weights);

}  // namespace espalier::models
