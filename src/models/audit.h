#pragma once

#include "layers/weight_reader.h"
#include "models/descriptor.h"

namespace espalier::models {

/// Throws `LoadError` naming the tensors of the checkpoint that were neither read nor are known to
/// be without use.
void check_all_tensors_read(const Descriptor& descriptor, const layers::WeightReader& weights);

}  // namespace espalier::models
