#include "layers/weight_reader.h"

#include <algorithm>
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

/// The wanted rows behind one another.
std::vector<std::byte> copied_rows(std::span<const std::byte> matrix, const MatrixPart& part) {
  const std::size_t row_bytes = matrix.size() / static_cast<std::size_t>(part.total_rows);
  std::vector<std::byte> rows(row_bytes * part.rows.size());
  for (std::size_t i = 0; i < part.rows.size(); ++i) {
    std::memcpy(rows.data() + i * row_bytes,
                matrix.data() + static_cast<std::size_t>(part.rows[i]) * row_bytes, row_bytes);
  }
  return rows;
}

/// The wanted columns of a matrix [columns, total_rows] of plain numbers, as rows.
std::vector<std::byte> transposed_rows(std::span<const std::byte> matrix, const MatrixPart& part) {
  const auto columns = static_cast<std::size_t>(part.columns);
  const auto total = static_cast<std::size_t>(part.total_rows);
  const std::size_t item = matrix.size() / (columns * total);
  std::vector<std::byte> rows(item * columns * part.rows.size());
  for (std::size_t k = 0; k < columns; ++k) {
    for (std::size_t i = 0; i < part.rows.size(); ++i) {
      std::memcpy(rows.data() + (i * columns + k) * item,
                  matrix.data() + (k * total + static_cast<std::size_t>(part.rows[i])) * item,
                  item);
    }
  }
  return rows;
}

}  // namespace

std::vector<int> number_range(int first, int count, int step) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    numbers[i] = first + i * step;
  }
  return numbers;
}

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

kernels::PackedMatrix WeightReader::matrix_part(const std::string& name, const MatrixPart& part) {
  std::vector<std::int64_t> shape = {part.total_rows, part.columns};
  if (part.transposed) {
    std::swap(shape[0], shape[1]);
  }
  if (part.count > 0) {
    shape.insert(shape.begin(), part.count);
  }
  const arrays::TensorView& tensor = take(name, shape);
  const std::size_t bytes = tensor.bytes.size() / static_cast<std::size_t>(std::max(part.count, 1));
  const auto stack = tensor.bytes.subspan(bytes * static_cast<std::size_t>(part.index), bytes);
  if (part.transposed && arrays::storage_traits(tensor.type).elements != 1) {
    throw base::LoadError(path() + ": tensor '" + name + "' has type " +
                          std::string(arrays::storage_traits(tensor.type).name) +
                          ", expected f32, f16 or bf16.");
  }
  const std::vector<std::byte> copy =
      part.transposed ? transposed_rows(stack, part) : copied_rows(stack, part);
  arrays::TensorView view = tensor;
  view.shape = {static_cast<std::int64_t>(part.rows.size()), part.columns};
  view.bytes = copy;
  kernels::PackedMatrix packed = kernels::pack(view);
  view.bytes = stack;
  file_->release(view);
  return packed;
}

std::vector<float> WeightReader::vector(const std::string& name, int size) {
  return values(name, {size});
}

std::vector<float> WeightReader::flat(const std::string& name, int size) {
  const arrays::TensorView* tensor = file_->find(name);
  std::int64_t count = 1;
  for (const std::int64_t extent :
       tensor == nullptr ? std::vector<std::int64_t>() : tensor->shape) {
    count *= extent;
  }
  return values(
      name, tensor != nullptr && count == size ? tensor->shape : std::vector<std::int64_t>{size});
}

std::vector<float> WeightReader::values(const std::string& name,
                                        const std::vector<std::int64_t>& shape) {
  const arrays::TensorView& tensor = take(name, shape);
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
