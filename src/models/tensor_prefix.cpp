#include "models/tensor_prefix.h"

#include <string>

namespace espalier::models {

void drop_absent_prefix(TensorNames& names, const layers::WeightReader& weights) {
  const std::string prefix = names.embedding.substr(0, names.embedding.find('.') + 1);
  const std::string bare = names.embedding.substr(prefix.size());
  if (prefix.empty() || weights.contains(names.embedding + ".weight") ||
      !weights.contains(bare + ".weight")) {
    return;
  }
  LayerInputNames& input = names.layer_input;
  for (std::string* name :
       {&names.embedding, &names.positions, &names.embedding_norm, &names.final_norm, &names.layers,
        &input.embedding, &input.projection, &input.projection_norm}) {
    if (name->starts_with(prefix)) {
      name->erase(0, prefix.size());
    }
  }
}

}  // namespace espalier::models
