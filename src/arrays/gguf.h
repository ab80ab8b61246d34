#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "arrays/tensor_file.h"

namespace espalier::arrays {

/// A metadata value. Integers are widened to 64 bits and floats to double; arrays are homogeneous.
using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string,
                               std::vector<std::uint64_t>, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<bool>, std::vector<std::string>>;

/// The metadata of a GGUF file with typed access. Each getter throws `LoadError` naming file and
/// key when the key is there with another type; the optional ones return nothing when it is absent.
class GgufMetadata {
 public:
  GgufMetadata(std::string path, std::map<std::string, GgufValue, std::less<>> values);

  bool contains(std::string_view key) const;
  const GgufValue* find(std::string_view key) const;
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  const std::string& path() const { return path_; }

  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  /// Null when absent; points into this object.
  const std::vector<std::string>* strings(std::string_view key) const;

  /// As the getters above, but a missing key is a `LoadError` too.
  std::int64_t require_integer(std::string_view key) const;
  double require_number(std::string_view key) const;
  std::string require_string(std::string_view key) const;

 private:
  std::string path_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

/// A GGUF v2 or v3 file, little-endian, memory-mapped (format: ggml's docs/gguf.md). Parsing
/// allocates in proportion to bytes present in the file, never to a count a header claims. Throws
/// `LoadError` for anything malformed: bad magic or version, truncation, duplicate or overlapping
/// tensors, unknown types, offsets off alignment or past the end.
class GgufFile : public TensorFile {
 public:
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);

  virtual const GgufMetadata& metadata() const = 0;
};

}  // namespace espalier::arrays
