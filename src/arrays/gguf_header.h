#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arrays/gguf.h"

namespace espalier::arrays {

/// The number by which a GGUF file names a type; nothing when the format has none.
std::optional<std::uint32_t> gguf_type_code(StorageType type);

/// What stands before the tensor data of one GGUF file.
struct GgufHeader {
  struct Tensor {
    std::string name;
    StorageType type;
    std::vector<std::int64_t> shape;  // outermost first
    std::uint64_t offset;             // from `data`
    std::uint64_t bytes;
  };

  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<Tensor> tensors;  // in the file's order
  std::uint64_t data = 0;       // where tensor data starts
};

/// Parses the header of `file` and checks every tensor against the file's size and the others.
/// Throws `LoadError` naming `path`.
GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::string& path);

}  // namespace espalier::arrays
