#include "layers/weight_reader.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace espalier::layers {
namespace {

namespace mx = mlx::core;

std::string describe(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

/// Copies through memcpy: a tensor in a file need not be aligned for its type.
template <typename T>
std::vector<float> to_floats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
  }
  return values;
}

}  // namespace

WeightReader::WeightReader(std::shared_ptr<const arrays::TensorFile> file)
    : file_(std::move(file)) {}

const arrays::TensorView& WeightReader::take(const std::string& name,
                                             const std::vector<std::int64_t>& shape) {
  const arrays::TensorView* tensor = file_->find(name);
  if (tensor == nullptr) {
    throw base::LoadError(path() + ": tensor '" + name + "' is missing.");
  }
  if (tensor->shape != shape) {
    throw base::LoadError(path() + ": tensor '" + name + "' has shape " + describe(tensor->shape) +
                          ", expected " + describe(shape) + ".");
  }
  read_.insert(name);
  return *tensor;
}

kernels::PackedMatrix WeightReader::matrix(const std::string& name, int rows, int columns) {
  return matrix_rows(name, {.first_row = 0, .rows = rows, .total_rows = rows}, columns);
}

kernels::PackedMatrix WeightReader::matrix_rows(const std::string& name, const RowRange& range,
                                                int columns) {
  arrays::TensorView part = take(name, {range.total_rows, columns});
  const std::size_t row_bytes = part.bytes.size() / static_cast<std::size_t>(range.total_rows);
  part.shape[0] = range.rows;
  part.bytes = part.bytes.subspan(row_bytes * static_cast<std::size_t>(range.first_row),
                                  row_bytes * static_cast<std::size_t>(range.rows));
  kernels::PackedMatrix packed = kernels::pack(part);
  file_->release(part);
  return packed;
}

std::vector<float> WeightReader::vector(const std::string& name, int size) {
  const arrays::TensorView& tensor = take(name, {size});
  switch (tensor.type) {
    case arrays::StorageType::f32:
      return to_floats<float>(tensor.bytes);
    case arrays::StorageType::f16:
      return to_floats<mx::float16_t>(tensor.bytes);
    case arrays::StorageType::bf16:
      return to_floats<mx::bfloat16_t>(tensor.bytes);
    default:
      throw base::LoadError(path() + ": tensor '" + name + "' has type " +
                            std::string(arrays::storage_traits(tensor.type).name) +
                            ", expected f32, f16 or bf16.");
  }
}

std::vector<std::string> WeightReader::unread() const {
  std::vector<std::string> names;
  for (const arrays::TensorView& tensor : file_->tensors()) {
    if (!read_.contains(tensor.name)) {
      names.push_back(tensor.name);
    }
  }
  return names;
}

mx::array to_array(const std::vector<float>& values) {
  return mx::array(values.begin(), {static_cast<int>(values.size())}, mx::float32);
}

}  // namespace espalier::layers
