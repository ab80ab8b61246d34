#include "models/tensor_prefix.h"

#include <algorithm>
#include <array>
#include <string>

namespace espalier::models {

void find_tensor_prefix(TensorNames& names, const layers::WeightReader& weights) {
  const std::string prefix = names.embedding.substr(0, names.embedding.find('.') + 1);
  const std::string bare = names.embedding.substr(prefix.size());
  const auto holds = [&](const std::string& name) { return weights.contains(name + ".weight"); };
  if (prefix.empty() || holds(names.embedding)) {
    return;
  }
  const std::array<std::string, 6> others = {"",
                                             "model.language_model.",
                                             "language_model." + prefix,
                                             "language_model.",
                                             "model.text_model.",
                                             "thinker.model."};
  const auto* found =
      std::ranges::find_if(others, [&](const std::string& other) { return holds(other + bare); });
  if (found == others.end()) {
    return;
  }
  LayerInputNames& input = names.layer_input;
  for (std::string* name :
       {&names.embedding, &names.positions, &names.embedding_norm, &names.final_norm, &names.layers,
        &names.embedding_output, &names.head_input, &input.embedding, &input.projection,
        &input.projection_norm, &names.alt_up.spread, &names.alt_up.merge}) {
    if (name->starts_with(prefix)) {
      name->replace(0, prefix.size(), *found);
    }
  }
  for (const char* part : {"language_model.", "thinker."}) {
    if (const std::string head = part + names.head; holds(head)) {
      names.head = head;
    }
  }
}

}  // namespace espalier::models
