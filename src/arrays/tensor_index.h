#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arrays/tensor_file.h"

namespace espalier::arrays {

/// Bytes that a tensor of this type and shape takes, rows being whole quantization blocks; nothing
/// when a dimension is negative, the rows are not whole or the number does not fit.
std::optional<std::uint64_t> tensor_bytes(StorageType type, const std::vector<std::int64_t>& shape);

/// "[3, 5]", for messages.
std::string to_string(const std::vector<std::int64_t>& shape);

/// A name read from a file, fit to be shown: quoted, short, without control characters.
std::string shown_name(std::string_view name);

/// The tensors of one or more files, by name.
class TensorIndex {
 public:
  /// Throws `LoadError` naming `path` when the name is taken.
  void add(TensorView tensor, const std::string& path);

  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;

 private:
  std::vector<TensorView> tensors_;
  std::map<std::string, std::size_t, std::less<>> positions_;
};

}  // namespace espalier::arrays
