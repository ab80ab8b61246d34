#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "conversion/layout.h"
#include "conversion/plan.h"
#include "conversion/source.h"

namespace espalier::conversion {

/// What a folder will hold: its configuration, without what it says of quantization, and tensors.
struct FolderPlan {
  nlohmann::ordered_json config;
  Plan plan;
};

/// Plans a folder in Hugging Face's layout, whatever the source's is. Throws as `convert` does.
FolderPlan prepare_folder(const Source& source, const ConvertOptions& options);

/// Of all tensors that store it.
std::uint64_t stored_bytes(const PlannedTensor& tensor);

/// The family's layouts. Throws `LoadError` when it has one container only.
const Layout& layout_of(const Source& source);

/// Drops a head that is the embedding again, which readers would have no use for.
void drop_tied_head(const nlohmann::ordered_json& config, std::vector<SourceTensor>& tensors);

/// Drops tensors that the model leaves unread, which have no names in the other container, and
/// notes why.
void drop_unread(const Source& source, std::vector<SourceTensor>& tensors,
                 std::vector<std::string>& notes);

}  // namespace espalier::conversion
