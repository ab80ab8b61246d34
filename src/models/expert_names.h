#pragma once

#include "arrays/tensor_file.h"
#include "layers/weight_reader.h"
#include "models/descriptor.h"

namespace espalier::models {

/// A family's experts may lie in the file as a tensor each, as the makers published them; or
/// stacked, as MLX (`switch_mlp`) or transformers 5 (`experts.gate_up_proj`) save them. Makes names
/// and layout those of the file, in which a stack may also lie [experts, inputs, outputs].
void use_stacked_experts(Descriptor& descriptor, const layers::WeightReader& weights,
                         const arrays::TensorFile& file);

}  // namespace espalier::models
