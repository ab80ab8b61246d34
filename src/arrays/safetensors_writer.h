#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "arrays/tensor_file.h"
#include "base/output_file.h"

namespace espalier::arrays {

/// Writes a `.safetensors` file tensor by tensor, in bounded memory: into a temporary file beside
/// it, which takes the final name only when everything is there. Used from one thread.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    StorageType type;  // a plain type that safetensors can name
    std::vector<std::int64_t> shape;
  };

  /// Writes the header. `metadata` becomes `__metadata__`. Throws `std::invalid_argument` for
  /// entries the format cannot hold and `std::runtime_error` naming `path` when writing fails.
  SafetensorsWriter(std::filesystem::path path, const std::vector<Entry>& entries,
                    const std::map<std::string, std::string>& metadata = {});

  /// Adds the next bytes of the data, in the order of the entries; tensors may come in any number
  /// of pieces.
  void append(std::span<const std::byte> bytes);

  /// Publishes the file, replacing one that is there. Throws `std::logic_error` when the data is
  /// not as long as the entries say.
  void finish();

 private:
  base::OutputFile file_;
  std::uint64_t missing_ = 0;  // bytes of data still to come
};

}  // namespace espalier::arrays
