#include "layers/weight_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "layers/linear_observer.h"

namespace espalier::layers {
namespace {

namespace mx = mlx::core;

/// Faults after which a reader of headers ends.
constexpr std::size_t most_faults = 50;
/// The largest extent of a faulty tensor for which something of its shape is made.
constexpr std::int64_t largest_substitute = 1 << 22;

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

WeightReader::WeightReader(std::shared_ptr<const arrays::TensorFile> file,
                           quantization::WeightSchemes schemes, WeightPlace place)
    : file_(std::move(file)), schemes_(std::move(schemes)), place_(place) {}

template <class Read, class Substitute>
auto WeightReader::attempt(const std::string& name, std::int64_t extent, const Read& read,
                           const Substitute& substitute) {
  if (place_ != WeightPlace::headers) {
    return read();
  }
  try {
    return read();
  } catch (const base::LoadError& error) {
    record(name, extent, error.what());
    return substitute();
  }
}

void WeightReader::record(const std::string& name, std::int64_t extent, const std::string& fault) {
  if (faults_.size() + 1 >= most_faults || extent > largest_substitute) {
    fail_with(fault);
  }
  faults_.push_back(fault);
  const std::string module = name.substr(0, name.rfind('.') + 1);
  for (const arrays::TensorView& tensor : file_->tensors()) {
    if (tensor.name == name || (!module.empty() && tensor.name.starts_with(module))) {
      read_.insert(tensor.name);
    }
  }
}

void WeightReader::fail_with(const std::string& fault) {
  if (!fault.empty()) {
    faults_.push_back(fault);
  }
  const std::string before = path() + ": ";
  std::string all = before;
  for (const std::string& each : faults_) {
    const bool named = each.starts_with(before);
    const std::size_t end = each.size() - (each.ends_with('.') ? 1 : 0);
    all += all.size() > before.size() ? "; " : "";
    all += named ? each.substr(before.size(), end - before.size()) : each.substr(0, end);
  }
  throw base::LoadError(all + ".");
}

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

int WeightReader::outputs(std::string_view name) const {
  const arrays::TensorView* tensor = file_->find(name);
  if (tensor == nullptr) {
    return 0;
  }
  return tensor->shape.empty() ? 1 : static_cast<int>(tensor->shape.front());
}

kernels::PackedMatrix WeightReader::matrix(const std::string& name, int rows, int columns) {
  return matrix_rows(name, {.first_row = 0, .rows = rows, .total_rows = rows}, columns);
}

kernels::PackedMatrix WeightReader::table(const std::string& name, int rows, int columns) {
  return pack_stored(
      name,
      {.rows = number_range(0, rows), .total_rows = rows, .columns = columns, .plain_rows = true});
}

kernels::PackedMatrix WeightReader::matrix_rows(const std::string& name, const RowRange& range,
                                                int columns) {
  return pack_stored(name, {.rows = number_range(range.first_row, range.rows),
                            .total_rows = range.total_rows,
                            .columns = columns});
}

quantization::StoredMatrix WeightReader::find_stored(const std::string& name,
                                                     const MatrixPart& part) {
  constexpr std::string_view suffix = ".weight";
  const std::string module =
      name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
  if (part.total_rows < 1 || part.columns < 1) {
    throw base::LoadError(path() + ": tensor '" + name + "' would hold nothing: a size is 0.");
  }
  const auto lookup = [&](const std::string& tensor) -> std::optional<arrays::TensorView> {
    // A name without the suffix is a tensor's own.
    const bool bare = module == name && tensor == module + ".weight";
    const arrays::TensorView* found = file_->find(bare ? name : tensor);
    if (found == nullptr) {
      return std::nullopt;
    }
    arrays::TensorView view = *found;
    if (part.count > 0 && view.shape.size() > 2 && view.shape[0] == part.count) {
      const std::size_t bytes = view.bytes.size() / static_cast<std::size_t>(part.count);
      view.shape.erase(view.shape.begin());
      view.bytes = view.bytes.subspan(bytes * static_cast<std::size_t>(part.index), bytes);
    }
    return view;
  };
  quantization::StoredMatrix stored =
      quantization::find_matrix(lookup, schemes_, path(), module, part.total_rows, part.columns);
  if (stored.trellis && part.plain_rows) {
    throw base::LoadError(path() + ": tensor '" + name +
                          "' is trellis-coded, which only a linear map can be.");
  }
  read_trellis_ = read_trellis_ || stored.trellis;
  for (const arrays::TensorView& tensor : stored.tensors) {
    read_.insert(tensor.name);
  }
  return stored;
}

kernels::PackedMatrix WeightReader::pack_stored(const std::string& name, const MatrixPart& part) {
  if (place_ == WeightPlace::headers) {
    return read_headers(name, part);
  }
  const quantization::StoredMatrix stored = find_stored(name, part);
  kernels::PackedMatrix packed = quantization::pack(
      stored, part.rows, part.columns, place_ == WeightPlace::in_place ? file_ : nullptr);
  packed_bytes_ += packed.packed_bytes();
  for (const arrays::TensorView& tensor : stored.tensors) {
    if (!packed.source) file_->release(tensor);
  }
  check_finite(name, packed, part);
  if (LinearObserver* observer = LinearObserver::current()) observer->loaded(name, packed);
  return packed;
}

void WeightReader::check_finite(const std::string& name, const kernels::PackedMatrix& matrix,
                                const MatrixPart& part) const {
  if (!check_values_) {
    return;
  }
  if (const auto place = kernels::find_non_finite(matrix)) {
    fail_value(name, "row " + std::to_string(part.rows[static_cast<std::size_t>(place->first)]) +
                         ", column " + std::to_string(place->second));
  }
}

void WeightReader::fail_value(const std::string& name, const std::string& place) const {
  throw base::LoadError(path() + ": tensor '" + name +
                        "' has a value that is infinite or not a number at " + place + ".");
}

const arrays::TensorView& WeightReader::take_part(const std::string& name, const MatrixPart& part) {
  std::vector<std::int64_t> shape = {part.total_rows, part.columns};
  if (part.transposed) {
    std::swap(shape[0], shape[1]);
  }
  if (part.flat) {
    shape[0] *= part.count;
  } else if (part.count > 0) {
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
  read_headers(name, part);
}

kernels::PackedMatrix WeightReader::read_headers(const std::string& name, const MatrixPart& part) {
  const auto rows = static_cast<int>(part.rows.size());
  const auto bytes = [&] {
    if (!part.transposed) {
      return quantization::packed_bytes(find_stored(name, part), rows, part.columns);
    }
    arrays::TensorView view = take_part(name, part);
    view.shape = {rows, part.columns};
    kernels::check_packable(view);
    return kernels::bytes_once_packed(kernels::packed_layout(view.type), rows, part.columns);
  };
  return kernels::shape_alone(
      rows, part.columns,
      attempt(name, std::max(part.total_rows, part.columns), bytes, [] { return std::size_t{0}; }));
}

kernels::PackedMatrix WeightReader::matrix_part(const std::string& name, const MatrixPart& part) {
  return part.transposed ? pack_transposed(name, part) : pack_stored(name, part);
}

kernels::PackedMatrix WeightReader::pack_transposed(const std::string& name,
                                                    const MatrixPart& part) {
  if (place_ == WeightPlace::headers) {
    return read_headers(name, part);
  }
  arrays::TensorView view = take_part(name, part);
  const std::size_t bytes = view.bytes.size() / static_cast<std::size_t>(std::max(part.count, 1));
  const auto matrix = view.bytes.subspan(bytes * static_cast<std::size_t>(part.index), bytes);
  const std::vector<std::byte> copy = transposed_rows(matrix, part);
  view.bytes = copy;
  view.shape = {static_cast<std::int64_t>(part.rows.size()), part.columns};
  kernels::PackedMatrix packed = kernels::pack(view);
  packed_bytes_ += packed.packed_bytes();
  view.bytes = matrix;
  file_->release(view);
  check_finite(name, packed, part);
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
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    count = extent < 0 || count > largest_substitute ? largest_substitute + 1 : count * extent;
  }
  return attempt(
      name, count, [&] { return read_values(name, shape); },
      [&] { return std::vector<float>(static_cast<std::size_t>(count), 1.0F); });
}

std::vector<float> WeightReader::read_values(const std::string& name,
                                             const std::vector<std::int64_t>& shape) {
  const arrays::TensorView& tensor = take(name, shape);
  std::vector<float> values;
  switch (tensor.type) {
    case arrays::StorageType::f32:
      values = to_floats<float>(tensor.bytes);
      break;
    case arrays::StorageType::f16:
      values = to_floats<mx::float16_t>(tensor.bytes);
      break;
    case arrays::StorageType::bf16:
      values = to_floats<mx::bfloat16_t>(tensor.bytes);
      break;
    default:
      throw base::LoadError(path() + ": tensor '" + name + "' has type " +
                            std::string(arrays::storage_traits(tensor.type).name) +
                            ", expected f32, f16 or bf16.");
  }
  const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  if (check_values_ && bad != values.end()) {
    fail_value(name, "element " + std::to_string(bad - values.begin()));
  }
  return values;
}

std::vector<std::string> WeightReader::unread() const {
  std::vector<std::string> names;
  for (const arrays::TensorView& tensor : file_->tensors()) {
    if (!read_.contains(tensor.name) && !tensor.bytes.empty()) {
      names.push_back(tensor.name);
    }
  }
  return names;
}

kernels::PackedMatrix transpose(const kernels::PackedMatrix& matrix) {
  if (matrix.source && !matrix.source->fill) {
    return kernels::shape_alone(matrix.columns, matrix.rows, matrix.bytes());
  }
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
