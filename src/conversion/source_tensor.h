#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arrays/tensor_file.h"
#include "conversion/encoding.h"
#include "conversion/rotation.h"
#include "quantization/stored_matrix.h"

namespace espalier::conversion {

/// How the names of weights end in Hugging Face's and MLX's checkpoints.
inline constexpr std::string_view weight_suffix = ".weight";

/// How the rows of a tensor are put into another order. The two halves that rotary embedding pairs
/// lie one after the other in each head (Hugging Face), or their elements alternate (GGUF's Llama).
struct HeadOrder {
  enum class Kind { none, halves_to_pairs, pairs_to_halves };

  Kind kind = Kind::none;
  std::int64_t heads = 1;
};

/// A change of a weight [outputs, inputs] on its way: each input times its scale, then rotations of
/// the inputs and of the outputs. Any may be absent.
struct Fold {
  std::shared_ptr<const std::vector<float>> input_scale;
  std::shared_ptr<const Rotation> inputs;
  std::shared_ptr<const Rotation> outputs;
};

/// One tensor to convert, seen as rows of f32 values: whatever it is stored as, with the changes
/// that the target's layout asks for. Reads from the mapped file; any thread may read.
class SourceTensor {
 public:
  /// A tensor as a file holds it. Throws `LoadError` for a type whose values are not known.
  SourceTensor(std::shared_ptr<const arrays::TensorFile> file, arrays::TensorView weight);
  /// Codes, scales and, for affine, biases in one of MLX's formats. Throws `LoadError` when their
  /// shapes and types do not fit together.
  SourceTensor(std::shared_ptr<const arrays::TensorFile> file, quantization::MlxFormat format,
               arrays::TensorView weight, arrays::TensorView scales,
               std::optional<arrays::TensorView> biases);
  /// A matrix in any other scheme, of which only the values count.
  SourceTensor(std::shared_ptr<const arrays::TensorFile> file, std::string name,
               quantization::StoredMatrix matrix, std::vector<std::int64_t> shape);
  /// Values made up for the target, as f32; `natural` is the type that suits them.
  SourceTensor(std::string name, std::vector<float> values, std::vector<std::int64_t> shape,
               arrays::StorageType natural);

  const std::string& name() const { return name_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  const Encoding& encoding() const { return encoding_; }
  /// All dimensions but the last; of a vector, its elements.
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t elements() const { return rows_ * columns_; }
  /// Of an affine tensor's scales or made-up values; else the stored type itself where it is dense,
  /// or bf16.
  arrays::StorageType natural_dtype() const;

  /// Says that the matrix lies [inputs, outputs], so that its rows are no rows of a linear map.
  void mark_transposed() { transposed_ = true; }
  bool transposed() const { return transposed_; }

  void rename(std::string name) { name_ = std::move(name); }
  /// One order after the opposite one is none. Throws `LoadError` when the rows do not divide into
  /// heads of even size.
  void reorder(const HeadOrder& order);
  /// Keeps every second index of a dimension, from `first` on: one of two tensors whose rows take
  /// turns. `axis` is the last dimension (of plain numbers) or the one before.
  void keep_alternate(std::size_t axis, std::int64_t first);
  /// Adds a number to every value.
  void shift(float offset) { offset_ += offset; }

  /// Throws `LoadError` when the sizes do not fit.
  void fold(Fold fold);
  const std::optional<Fold>& folding() const { return fold_; }
  /// By which the file has the weight or its codes.
  const std::string& stored_name() const { return weight_.name; }

  /// Whether it is stored in a scheme that no target has, or folded. `read` is then for one thread,
  /// outside the compute pool, which it uses itself.
  bool foreign() const { return matrix_ != nullptr || fold_.has_value(); }

  /// Whether the stored bytes of each row are what the target gets, only perhaps in another order.
  bool keeps_bytes() const { return offset_ == 0 && !foreign(); }

  /// The values of some rows.
  void read(std::int64_t first_row, std::int64_t rows, std::span<float> values) const;

  /// What the parts of the stored tensor are: the weight or codes, scales, biases.
  std::vector<const arrays::TensorView*> parts() const;
  /// The stored bytes of one row of a part.
  std::span<const std::byte> row_bytes(const arrays::TensorView& part, std::int64_t row) const;
  /// Gives back the pages of the rows up to `last_row`, once they are not needed any more.
  void release(std::int64_t first_row, std::int64_t last_row) const;

 private:
  std::int64_t stored_row(std::int64_t row) const;
  void read_unfolded(std::int64_t first_row, std::int64_t rows, std::span<float> values) const;
  /// All values, outputs rotated.
  std::vector<float> rotate_outputs() const;
  std::int64_t stored_rows() const { return rows_ * row_step_; }
  void read_matrix(std::int64_t first_row, std::int64_t rows, std::span<float> values) const;
  void read_stored(std::int64_t first_row, std::int64_t rows, std::span<float> values) const;

  std::shared_ptr<const arrays::TensorFile> file_;
  std::vector<float> made_up_;
  arrays::StorageType made_up_dtype_ = arrays::StorageType::f32;
  std::string name_;
  std::vector<std::int64_t> shape_;
  Encoding encoding_;
  std::int64_t rows_ = 1;
  std::int64_t columns_ = 1;
  arrays::TensorView weight_;
  std::optional<arrays::TensorView> scales_;
  std::optional<arrays::TensorView> biases_;
  std::shared_ptr<const quantization::StoredMatrix> matrix_;
  HeadOrder order_;
  std::int64_t first_row_ = 0;
  std::int64_t row_step_ = 1;
  float offset_ = 0;
  std::optional<Fold> fold_;
  /// While rows of a tensor whose outputs are rotated are read: all of them.
  mutable std::vector<float> rotated_;
  bool transposed_ = false;
};

}  // namespace espalier::conversion
