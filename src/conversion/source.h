#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "arrays/gguf.h"
#include "conversion/source_tensor.h"

namespace espalier::conversion {

/// A checkpoint to convert. Opening it reads headers and configuration, no weights.
struct Source {
  std::filesystem::path path;  // a folder or a .gguf file
  std::shared_ptr<const arrays::TensorFile> file;
  std::shared_ptr<const arrays::GgufFile> gguf;  // null for a folder
  nlohmann::ordered_json config;      // config.json without its quantization; null for GGUF
  std::vector<SourceTensor> tensors;  // in the order of the file, by its names
};

/// Opens a folder with config.json and safetensors (plain, or quantized by any known method), a
/// folder with params.json in the makers' own layout, or a GGUF file.
/// Throws `LoadError` for anything malformed and for weights quantized by a method that is not
/// known, naming it.
Source open_source(const std::filesystem::path& path);

}  // namespace espalier::conversion
