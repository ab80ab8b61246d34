#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays/gguf.h"
#include "base/output_file.h"

namespace espalier::arrays {

/// Metadata in the order in which it is written.
using GgufValues = std::vector<std::pair<std::string, GgufValue>>;

/// Writes a GGUF v3 file tensor by tensor, in bounded memory; the file appears only when it is
/// complete. Numbers take the types that ggml's readers expect: 32 bits where they fit, floats as
/// f32. Used from one thread.
class GgufWriter {
 public:
  struct Entry {
    std::string name;
    StorageType type;
    std::vector<std::int64_t> shape;  // outermost first, up to four dimensions
  };

  /// Writes the header. Throws `std::invalid_argument` for entries that the format cannot hold and
  /// `std::runtime_error` naming `path` when writing fails.
  GgufWriter(std::filesystem::path path, const GgufValues& values,
             const std::vector<Entry>& entries);

  /// Adds the next bytes of the data, in the order of the entries; a tensor may come in pieces, but
  /// no piece spans two.
  void append(std::span<const std::byte> bytes);

  /// Publishes the file. Throws `std::logic_error` when data is missing and `std::runtime_error`
  /// when a file of that name exists.
  void finish();

 private:
  base::OutputFile file_;
  std::vector<std::uint64_t> sizes_;  // of the tensors in bytes
  std::size_t tensor_ = 0;
  std::uint64_t written_ = 0;  // bytes of `tensor_`
};

}  // namespace espalier::arrays
