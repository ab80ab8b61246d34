#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::tests {

/// Puts together the bytes of a GGUF file, right or wrong, from ggml's description of the format.
class GgufBuilder {
 public:
  template <typename T>
  static std::string bytes(T value) {
    std::string text(sizeof value, '\0');
    std::memcpy(text.data(), &value, sizeof value);
    return text;
  }

  static std::string string(std::string_view text) {
    return bytes<std::uint64_t>(text.size()) + std::string(text);
  }

  /// Adds a metadata entry of the type with this number.
  GgufBuilder& value(std::string_view key, std::uint32_t type, const std::string& encoded) {
    values_ += string(key) + bytes(type) + encoded;
    ++value_count_;
    return *this;
  }
  GgufBuilder& u32(std::string_view key, std::uint32_t number) {
    return value(key, 4, bytes(number));
  }
  GgufBuilder& text(std::string_view key, std::string_view value_text) {
    return value(key, 8, string(value_text));
  }
  /// An array of elements of one type, already encoded.
  GgufBuilder& array(std::string_view key, std::uint32_t type, std::uint64_t count,
                     const std::string& elements) {
    return value(key, 9, bytes(type) + bytes(count) + elements);
  }

  /// Adds a tensor; `dimensions` innermost first, as in the file.
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions,
                      std::uint32_t type, std::uint64_t offset) {
    tensors_ += string(name) + bytes(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t size : dimensions) tensors_ += bytes(size);
    tensors_ += bytes(type) + bytes(offset);
    ++tensor_count_;
    return *this;
  }

  GgufBuilder& version(std::uint32_t number) {
    version_ = number;
    return *this;
  }

  /// The header, padded to `alignment`, then `data`.
  std::string build(std::string_view data = {}, std::size_t alignment = 32) const {
    std::string file =
        "GGUF" + bytes(version_) + bytes(tensor_count_) + bytes(value_count_) + values_ + tensors_;
    if (!data.empty()) file.append((alignment - file.size() % alignment) % alignment, '\0');
    return file + std::string(data);
  }

 private:
  std::uint32_t version_ = 3;
  std::uint64_t value_count_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::string values_;
  std::string tensors_;
};

}  // namespace espalier::tests
