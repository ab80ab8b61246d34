#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "arrays/gguf.h"

namespace espalier::layers {
class WeightReader;
}

namespace espalier::models {

/// Reads a GGUF file's model settings. Keys are given without the architecture in front
/// ("attention.head_count"). Remembers which were read, so that one nobody read and that may change
/// results fails the load. Every getter throws `LoadError` naming file and key when the value has
/// another type, or when the key is absent and no default is given.
class GgufReader {
 public:
  GgufReader(std::shared_ptr<const arrays::GgufFile> file, layers::WeightReader& weights);

  const std::string& architecture() const { return architecture_; }
  std::string path() const { return file_->path(); }

  bool contains(std::string_view key) const;
  int integer(std::string_view key, std::optional<int> fallback = {}) const;
  /// A list of whole numbers, one a layer; or a single one. Empty when absent.
  std::vector<int> integers(std::string_view key) const;
  bool boolean(std::string_view key, bool fallback) const;
  double number(std::string_view key, std::optional<double> fallback = {}) const;
  std::string string(std::string_view key, std::optional<std::string> fallback = {}) const;
  /// The key must be absent or zero: what it would turn on is not supported.
  void require_off(std::string_view key) const;
  [[noreturn]] void fail(std::string_view key, const std::string& reason) const;

  bool has_tensor(std::string_view name) const { return file_->find(name) != nullptr; }
  /// Whether a layer has such a tensor: "attn_sinks.weight" of any "blk.N.".
  bool any_layer_has(std::string_view name) const;
  /// Rows of a matrix (outermost size).
  int tensor_rows(const std::string& name) const;
  /// A vector that belongs to the settings (RoPE factors); counts as read. Empty when absent.
  std::vector<float> factors(const std::string& name, int size) const;
  /// The end tokens the vocabulary names.
  std::vector<std::int32_t> end_tokens() const;

  /// Throws `LoadError` listing this architecture's keys that nobody read and that are not known to
  /// be without influence on results.
  void check_all_read() const;

 private:
  std::string full_key(std::string_view key) const;

  std::shared_ptr<const arrays::GgufFile> file_;
  layers::WeightReader* weights_;
  std::string architecture_;
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace espalier::models
