#include "arrays/tensor_index.h"

#include <utility>

#include "base/error.h"

namespace espalier::arrays {

std::optional<std::uint64_t> tensor_bytes(StorageType type,
                                          const std::vector<std::int64_t>& shape) {
  const StorageTraits& traits = storage_traits(type);
  const std::int64_t row = shape.empty() ? 1 : shape.back();
  if (row % traits.elements != 0) return std::nullopt;
  std::uint64_t bytes = traits.bytes;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) return std::nullopt;
    const bool last = i + 1 == shape.size();
    const auto count = static_cast<std::uint64_t>(last ? row / traits.elements : shape[i]);
    if (__builtin_mul_overflow(bytes, count, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string to_string(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::string shown_name(std::string_view name) {
  constexpr std::size_t longest = 120;
  std::string text = "\"";
  for (const char character : name.substr(0, longest)) {
    const auto code = static_cast<unsigned char>(character);
    const bool printable = code >= 0x20 && code < 0x7F;
    text += printable ? character : '?';
  }
  return text + (name.size() > longest ? "…\"" : "\"");
}

void TensorIndex::add(TensorView tensor, const std::string& path) {
  if (!positions_.emplace(tensor.name, tensors_.size()).second) {
    throw base::LoadError(path + ": tensor " + shown_name(tensor.name) + " appears twice");
  }
  tensors_.push_back(std::move(tensor));
}

const TensorView* TensorIndex::find(std::string_view name) const {
  const auto found = positions_.find(name);
  return found == positions_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace espalier::arrays
