#include "conversion/source_tensor.h"

#include <algorithm>
#include <utility>

#include "arrays/tensor_index.h"
#include "base/error.h"
#include "conversion/sizes.h"
#include "quantization/gguf_blocks.h"

namespace espalier::conversion {
namespace {

using arrays::StorageType;
using arrays::TensorView;
using base::LoadError;
using quantization::MlxFormat;
using quantization::MlxMode;

/// The rows [first, first + rows) of a part that has `all` of them.
std::span<const std::byte> part_rows(const TensorView& part, std::int64_t all, std::int64_t first,
                                     std::int64_t rows) {
  if (all == 0) return {};
  const std::size_t row = part.bytes.size() / size(all);
  return part.bytes.subspan(row * size(first), row * size(rows));
}

std::vector<float> part_values(const TensorView& part, std::int64_t all, std::int64_t first,
                               std::int64_t rows) {
  const auto bytes = part_rows(part, all, first, rows);
  const auto& traits = arrays::storage_traits(part.type);
  std::vector<float> values(bytes.size() / size(traits.bytes) * size(traits.elements));
  quantization::dequantize(part.type, bytes, values);
  return values;
}

}  // namespace

SourceTensor::SourceTensor(std::shared_ptr<const arrays::TensorFile> file, TensorView weight)
    : file_(std::move(file)),
      name_(weight.name),
      shape_(weight.shape),
      encoding_(weight.type),
      weight_(std::move(weight)) {
  if (!quantization::can_dequantize(weight_.type) && !is_integer(weight_.type)) {
    throw LoadError(file_->path() + ": tensor " + arrays::shown_name(name_) + " has type " +
                    std::string(arrays::storage_traits(weight_.type).name) +
                    ", which cannot be converted");
  }
  for (std::size_t i = 0; i + 1 < shape_.size(); ++i) rows_ *= shape_[i];
  if (!shape_.empty()) columns_ = shape_.back();
  if (shape_.size() == 1 && arrays::storage_traits(weight_.type).elements == 1) {
    std::swap(rows_, columns_);
  }
}

SourceTensor::SourceTensor(std::shared_ptr<const arrays::TensorFile> file, MlxFormat format,
                           TensorView weight, TensorView scales, std::optional<TensorView> biases)
    : file_(std::move(file)),
      name_(weight.name),
      shape_(weight.shape),
      encoding_(format),
      weight_(std::move(weight)),
      scales_(std::move(scales)),
      biases_(std::move(biases)) {
  const bool affine = format.mode == MlxMode::affine;
  const auto fail = [&](const std::string& what) {
    throw LoadError(file_->path() + ": tensor " + arrays::shown_name(name_) + " is not " +
                    to_string(encoding_) + ": " + what);
  };
  if (shape_.size() < 2 || weight_.type != StorageType::u32) fail("its codes are no u32 matrix");
  shape_.back() = shape_.back() * word_bits / format.bits;
  std::vector<std::int64_t> groups = shape_;
  groups.back() /= format.group;
  if (shape_.back() % format.group != 0 || scales_->shape != groups) {
    fail("its codes have shape " + arrays::to_string(weight_.shape) + " and its scales " +
         arrays::to_string(scales_->shape));
  }
  if (affine != biases_.has_value() || (biases_ && biases_->shape != groups)) {
    fail(affine ? "its biases are missing or misshapen" : "it has biases");
  }
  const bool known_type = affine ? is_dense(scales_->type) && is_dense(biases_->type)
                                 : scales_->type == StorageType::u8;
  if (!known_type) fail("its scales have the wrong type");
  for (std::size_t i = 0; i + 1 < shape_.size(); ++i) rows_ *= shape_[i];
  columns_ = shape_.back();
}

SourceTensor::SourceTensor(std::shared_ptr<const arrays::TensorFile> file, std::string name,
                           quantization::StoredMatrix matrix, std::vector<std::int64_t> shape)
    : file_(std::move(file)),
      name_(std::move(name)),
      shape_(std::move(shape)),
      encoding_(StorageType::f8_e4m3),  // stands for all types that no target has
      rows_(shape_.at(0)),
      columns_(shape_.at(1)),
      matrix_(std::make_shared<quantization::StoredMatrix>(std::move(matrix))) {
  weight_ = {name_, StorageType::f8_e4m3, shape_, {}};
}

SourceTensor::SourceTensor(std::string name, std::vector<float> values,
                           std::vector<std::int64_t> shape, StorageType natural)
    : made_up_(std::move(values)),
      made_up_dtype_(natural),
      name_(std::move(name)),
      shape_(std::move(shape)),
      encoding_(StorageType::f32),
      rows_(shape_.front()),
      columns_(static_cast<std::int64_t>(made_up_.size()) / rows_) {
  weight_ = {name_, StorageType::f32, shape_, {}};
}

StorageType SourceTensor::natural_dtype() const {
  if (file_ == nullptr) return made_up_dtype_;
  if (scales_ && is_dense(scales_->type)) return scales_->type;
  return is_dense(encoding_) ? std::get<StorageType>(encoding_) : StorageType::bf16;
}

void SourceTensor::reorder(const HeadOrder& order) {
  if (order.heads < 1 || rows_ % (2 * order.heads) != 0) {
    throw LoadError(file_->path() + ": the " + std::to_string(rows_) + " rows of tensor " +
                    arrays::shown_name(name_) + " do not divide into " +
                    std::to_string(order.heads) + " heads");
  }
  const bool undone = order_.kind != HeadOrder::Kind::none && order.kind != order_.kind &&
                      order.heads == order_.heads;
  order_ = undone ? HeadOrder{} : order;
}

void SourceTensor::keep_alternate(std::size_t axis, std::int64_t first) {
  if (axis >= shape_.size() || shape_[axis] % 2 != 0) {
    throw LoadError(file_->path() + ": tensor " + arrays::shown_name(name_) + " of shape " +
                    arrays::to_string(shape_) + " does not part into two");
  }
  if (axis + 1 == shape_.size()) rows_ *= std::exchange(columns_, 1);
  shape_[axis] /= 2;
  rows_ /= 2;
  first_row_ = first;
  row_step_ = 2;
}

std::int64_t SourceTensor::stored_row(std::int64_t row) const {
  if (order_.kind == HeadOrder::Kind::none) return first_row_ + row * row_step_;
  const std::int64_t size = rows_ / order_.heads;
  const std::int64_t half = size / 2;
  const std::int64_t head = row / size;
  const std::int64_t i = row % size;
  const bool to_pairs = order_.kind == HeadOrder::Kind::halves_to_pairs;
  return head * size + (to_pairs ? i % 2 * half + i / 2 : i % half * 2 + i / half);
}

void SourceTensor::read_matrix(std::int64_t first_row, std::int64_t rows,
                               std::span<float> values) const {
  std::vector<int> wanted(size(rows));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = static_cast<int>(stored_row(first_row + static_cast<std::int64_t>(i)));
  }
  const auto decoded =
      kernels::unpack(quantization::pack(*matrix_, wanted, static_cast<int>(columns_)));
  std::copy_n(decoded.data<float>(), values.size(), values.data());
}

void SourceTensor::read_stored(std::int64_t first_row, std::int64_t rows,
                               std::span<float> values) const {
  if (const auto* type = std::get_if<StorageType>(&encoding_)) {
    const auto bytes = file_ == nullptr ? std::as_bytes(std::span(made_up_))
                                              .subspan(size(first_row * columns_) * sizeof(float),
                                                       size(rows * columns_) * sizeof(float))
                                        : part_rows(weight_, stored_rows(), first_row, rows);
    quantization::dequantize(*type, bytes, values);
    return;
  }
  const auto& format = std::get<MlxFormat>(encoding_);
  const auto codes = part_rows(weight_, stored_rows(), first_row, rows);
  if (format.mode == MlxMode::affine) {
    quantization::decode_affine(format, codes,
                                part_values(*scales_, stored_rows(), first_row, rows),
                                part_values(*biases_, stored_rows(), first_row, rows), values);
  } else {
    quantization::decode_float(format, codes, part_rows(*scales_, stored_rows(), first_row, rows),
                               values);
  }
}

void SourceTensor::fold(Fold fold) {
  const bool fits = (!fold.input_scale || size(columns_) == fold.input_scale->size()) &&
                    (!fold.inputs || columns_ == fold.inputs->width()) &&
                    (!fold.outputs || rows_ == fold.outputs->width());
  if (!fits || shape_.size() > 2) {
    throw LoadError("tensor " + arrays::shown_name(name_) + " has shape " +
                    arrays::to_string(shape_) + ", which the rotation does not fit");
  }
  fold_ = std::move(fold);
}

std::vector<float> SourceTensor::rotate_outputs() const {
  std::vector<float> values(size(rows_ * columns_));
  read_unfolded(0, rows_, values);
  std::vector<float> transposed(values.size());
  for (std::int64_t row = 0; row < rows_; ++row) {
    for (std::int64_t column = 0; column < columns_; ++column) {
      transposed[size(column * rows_ + row)] = values[size(row * columns_ + column)];
    }
  }
  fold_->outputs->apply(transposed);
  for (std::int64_t row = 0; row < rows_; ++row) {
    for (std::int64_t column = 0; column < columns_; ++column) {
      values[size(row * columns_ + column)] = transposed[size(column * rows_ + row)];
    }
  }
  return values;
}

void SourceTensor::read(std::int64_t first_row, std::int64_t rows, std::span<float> values) const {
  if (!fold_) return read_unfolded(first_row, rows, values);
  if (fold_->outputs) {
    if (rotated_.empty()) rotated_ = rotate_outputs();
    std::copy_n(rotated_.begin() + first_row * columns_, values.size(), values.begin());
  } else {
    read_unfolded(first_row, rows, values);
  }
  for (std::size_t i = 0; fold_->input_scale && i < values.size(); ++i) {
    values[i] *= (*fold_->input_scale)[i % size(columns_)];
  }
  if (fold_->inputs) fold_->inputs->apply(values);
}

void SourceTensor::read_unfolded(std::int64_t first_row, std::int64_t rows,
                                 std::span<float> values) const {
  if (matrix_ != nullptr) {
    read_matrix(first_row, rows, values);
  } else if (order_.kind == HeadOrder::Kind::none && row_step_ == 1) {
    read_stored(first_row, rows, values);
  } else {
    for (std::int64_t i = 0; i < rows; ++i) {
      read_stored(stored_row(first_row + i), 1,
                  values.subspan(size(i) * size(columns_), size(columns_)));
    }
  }
  if (offset_ == 0) return;
  for (float& value : values) value += offset_;
}

std::vector<const TensorView*> SourceTensor::parts() const {
  std::vector<const TensorView*> parts = {&weight_};
  if (scales_) parts.push_back(&*scales_);
  if (biases_) parts.push_back(&*biases_);
  return parts;
}

std::span<const std::byte> SourceTensor::row_bytes(const TensorView& part, std::int64_t row) const {
  return part_rows(part, stored_rows(), stored_row(row), 1);
}

void SourceTensor::release(std::int64_t first_row, std::int64_t last_row) const {
  if (file_ == nullptr) return;
  if (last_row >= rows_) rotated_ = {};
  if (matrix_ != nullptr) {
    // Rows need not lie together.
    if (last_row < rows_) return;
    for (const TensorView& part : matrix_->tensors) file_->release(part);
    return;
  }
  for (const TensorView* part : parts()) {
    // Only the bytes matter for this.
    file_->release({{},
                    part->type,
                    {},
                    part_rows(*part, stored_rows(), first_row * row_step_,
                              (last_row - first_row) * row_step_)});
  }
}

}  // namespace espalier::conversion
