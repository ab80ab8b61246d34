#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "conversion/source_tensor.h"

namespace espalier::conversion {

/// Folds a seeded rotation of the residual stream into a model in Hugging Face's layout, which
/// computes the same as before: maps that read the stream take their norm's weights and the
/// rotation, maps that write to it and the embedding are rotated, norms become ones. A head that is
/// the embedding becomes a matrix of its own. Throws `LoadError` for families where it is not exact
/// (norms with a mean, or behind the maps that write) and tensors whose part in it is not known.
void fold_rotation(nlohmann::ordered_json& config, std::vector<SourceTensor>& tensors,
                   std::uint32_t seed, const std::string& path);

}  // namespace espalier::conversion
