#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "arrays/gguf_writer.h"
#include "conversion/plan.h"

namespace espalier::conversion {

/// Writes the planned tensors into `folder` as one model.safetensors, or as shards of at most
/// `shard_bytes` (unless a tensor alone is larger) with an index.
void write_safetensors(const std::vector<PlannedTensor>& tensors, const StreamControl& control,
                       std::uint64_t shard_bytes, const std::filesystem::path& folder);

/// `quantization` of config.json for the planned tensors: the format of most, and that of each
/// layer with another. Null when none is quantized.
nlohmann::ordered_json quantization_settings(const std::vector<PlannedTensor>& tensors);

/// Writes metadata and the planned tensors into a new file.
void write_gguf(const arrays::GgufValues& values, const std::vector<PlannedTensor>& tensors,
                const StreamControl& control, const std::filesystem::path& path);

}  // namespace espalier::conversion
