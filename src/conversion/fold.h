#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "conversion/source_tensor.h"

namespace espalier::conversion {

/// Folds a seeded rotation of the residual stream into a model in Hugging Face's layout, which
/// computes the same as before: maps that read the stream take their norm's weights and the
/// rotation, maps that write to it and the embedding are rotated, norms become ones. An embedding
/// that is the head too stays as it is, and the rotation becomes two matrices of its own, behind
/// the embedding and before the head, which the setting `rotated_embedding` tells of. Throws
/// `LoadError` for families where it is not exact (norms with a mean, or behind the maps that
/// write) and tensors whose part in it is not known.
void fold_rotation(nlohmann::ordered_json& config, std::vector<SourceTensor>& tensors,
                   std::uint32_t seed, const std::string& path);

}  // namespace espalier::conversion
