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

bool consecutive(const std::vector<int>& rows) {
  return std::ranges::adjacent_find(rows, [](int a, int b) { return b != a + 1; }) == rows.end();
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
  // GGUF files hold a matrix of one row as a vector.
  const bool one_row = shape.size() == 2 && shape[0] == 1 && tensor->shape.size() == 1 &&
                       tensor->shape[0] == shape[1];
  if (tensor->shape != shape && !one_row) {
    throw base::LoadError(path() + ": tensor '" + name + "' has shape " + describe(tensor->shape) +
                          ", expected " + describe(shape) + ".");
  }
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 1; })) {
    throw base::LoadError(path() + ": tensor '" + name + "' has shape " + describe(shape) +
                          ", which holds nothing.");
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

const arrays::TensorView& WeightReader::take_part(const std::string& name, const MatrixPart& part) {
  std::vector<std::int64_t> shape = {part.total_rows, part.columns};
  if (part.transposed) {
    std::swap(shape[0], shape[1]);
  }
  if (part.count > 0) {
    shape.insert(shape.begin(), part.count);
  }
  const arrays::TensorView& tensor = take(name, shape);
  if (part.transposed && arrays::storage_traits(tensor.type).elements != 1) {
    throw base::LoadError(path() + ": tensor '" + name + "' has type " +
                          std::string(arrays::storage_traits(tensor.type).name) +
                          ", expected f32, f16 or bf16.");
  }
  return tensor;
}

void WeightReader::check_part(const std::string& name, const MatrixPart& part) {
  take_part(name, part);
}

kernels::PackedMatrix WeightReader::matrix_part(const std::string& name, const MatrixPart& part) {
  arrays::TensorView view = take_part(name, part);
  const std::size_t bytes = view.bytes.size() / static_cast<std::size_t>(std::max(part.count, 1));
  const auto matrix = view.bytes.subspan(bytes * static_cast<std::size_t>(part.index), bytes);
  std::vector<std::byte> copy;
  if (part.transposed) {
    copy = transposed_rows(matrix, part);
    view.bytes = copy;
  } else if (consecutive(part.rows)) {
    const std::size_t row_bytes = bytes / static_cast<std::size_t>(part.total_rows);
    view.bytes = matrix.subspan(row_bytes * static_cast<std::size_t>(part.rows.front()),
                                row_bytes * part.rows.size());
  } else {
    copy = copied_rows(matrix, part);
    view.bytes = copy;
  }
  view.shape = {static_cast<std::int64_t>(part.rows.size()), part.columns};
  kernels::PackedMatrix packed = kernels::pack(view);
  view.bytes = matrix;
  file_->release(view);
  return packed;
}

std::size_t WeightReader::bytes() const {
  std::size_t total = 0;
  for (const arrays::TensorView& tensor : file_->tensors()) {
    total += tensor.bytes.size();
  }
  return total;
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

kernels::PackedMatrix transpose(const kernels::PackedMatrix& matrix) {
  const bool f32 = matrix.layout.type == kernels::BandType::f32;
  const bool bf16 = matrix.layout.type == kernels::BandType::bf16;
  mx::array values =
      mx::contiguous(mx::astype(mx::transpose(kernels::unpack(matrix)), f32    ? mx::float32
                                                                        : bf16 ? mx::bfloat16
                                                                               : mx::float16));
  values.eval();
  return kernels::pack({.name = "transposed",
                        .type = f32    ? arrays::StorageType::f32
                                : bf16 ? arrays::StorageType::bf16
                                       : arrays::StorageType::f16,
                        .shape = {matrix.columns, matrix.rows},
                        .bytes = {values.data<std::byte>(), values.nbytes()}});
}

mx::array to_array(const std::vector<float>& values) {
  return mx::array(values.begin(), {static_cast<int>(values.size())}, mx::float32);
}

}  // namespace espalier::layers
