#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "arrays/tensor_file.h"

namespace espalier::arrays {

/// One entry of a safetensors header: bytes [begin, end) of the data part.
struct SafetensorsEntry {
  std::string name;
  StorageType type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin;
  std::uint64_t end;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::uint64_t data = 0;                 // where the data part starts in the file
};

/// The name of a type in a safetensors header ("BF16"); empty when the format has none.
std::string_view safetensors_type_name(StorageType type);

/// Parses the header of `file`; what it returns covers the data part without gaps or overlaps.
/// Throws `LoadError` naming `path`.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& path);

}  // namespace espalier::arrays
