#pragma once

#include "layers/weight_reader.h"
#include "models/descriptor.h"

namespace espalier::models {

/// Some checkpoints leave out what the names of all tensors but the head begin with ("model.",
/// "transformer."). Takes it off the names where the file has none.
void drop_absent_prefix(TensorNames& names, const layers::WeightReader& weights);

}  // namespace espalier::models
