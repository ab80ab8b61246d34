#pragma once

#include <filesystem>
#include <memory>

#include "arrays/tensor_file.h"

namespace espalier::arrays {

/// Opens one `.safetensors` file, memory-mapped. Throws `LoadError` for a malformed header, offsets
/// past the end, gaps, overlaps, duplicates, or byte counts that disagree with shape and type.
std::shared_ptr<const TensorFile> open_safetensors(const std::filesystem::path& path);

/// Opens the safetensors checkpoint in `folder`: `model.safetensors.index.json` with its shards
/// when present, else `model.safetensors`, else every `*.safetensors`. Throws `LoadError` when
/// there is none, a shard is missing, or a tensor appears twice.
std::shared_ptr<const TensorFile> open_safetensors_folder(const std::filesystem::path& folder);

}  // namespace espalier::arrays
