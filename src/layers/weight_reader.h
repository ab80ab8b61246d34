#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "arrays/tensor_file.h"
#include "kernels/linear.h"
#include "mlx/mlx.h"
#include "quantization/stored_matrix.h"

namespace espalier::layers {

/// Where the weights are that are multiplied with: packed in private memory, which is faster, or in
/// the file's own pages (trellis codes and transposed matrices are copied all the same). Or
/// nowhere: headers are checked, and what is read has the right shape and no values.
enum class WeightPlace { packed, in_place, headers };

/// Consecutive rows of a weight tensor; `rows` of them from `first_row` on, out of `total_rows`.
struct RowRange {
  int first_row;
  int rows;
  int total_rows;
};

/// A matrix [outputs, inputs] as part of a tensor.
struct MatrixPart {
  std::vector<int> rows;    // which outputs, in this order
  int total_rows;           // outputs that the tensor holds
  int columns;              // inputs
  bool transposed = false;  // the tensor lies [inputs, outputs]
  int index = 0;            // of a stack of `count` such matrices
  int count = 0;            // 0: no stack
  bool flat = false;        // the stack's matrices lie below one another, without an axis for them
  bool plain_rows = false;  // rows are needed one by one: refuses trellis-coded ones
};

/// `count` numbers from `first` on, `step` apart.
std::vector<int> number_range(int first, int count, int step = 1);

/// Reads a checkpoint's tensors by name, checks their shapes, and remembers which were read. Pages
/// of the file are given back once a tensor was copied. Every function throws `LoadError` naming
/// file and tensor when it is missing or has another shape or a type that cannot be used; a reader
/// of headers goes on instead, up to a limit, and keeps what it found. Used by one thread.
class WeightReader {
 public:
  explicit WeightReader(std::shared_ptr<const arrays::TensorFile> file,
                        quantization::WeightSchemes schemes = {},
                        WeightPlace place = WeightPlace::packed);

  /// From now on every value read must be finite; else reading throws `LoadError` saying where.
  void check_values() { check_values_ = true; }

  bool contains(std::string_view name) const { return file_->find(name) != nullptr; }
  std::string path() const { return file_->path(); }
  /// The extent of a tensor's first axis, 1 for a single number; 0 when there is no such tensor.
  int outputs(std::string_view name) const;

  /// A matrix [rows, columns], packed for the kernels. `name` is that of the weight, ending in
  /// ".weight" where its scheme may be made of several tensors.
  kernels::PackedMatrix matrix(const std::string& name, int rows, int columns);
  /// The same of a table whose rows are looked up, which cannot be trellis-coded.
  kernels::PackedMatrix table(const std::string& name, int rows, int columns);
  /// Some rows of a matrix [range.total_rows, columns], packed.
  kernels::PackedMatrix matrix_rows(const std::string& name, const RowRange& range, int columns);
  /// Any other part of a tensor as a matrix, packed. Transposed tensors must hold plain numbers.
  kernels::PackedMatrix matrix_part(const std::string& name, const MatrixPart& part);
  /// Checks a part's tensor as `matrix_part` does and counts it as read, without packing it.
  void check_part(const std::string& name, const MatrixPart& part);
  /// A vector of plain numbers as f32 values.
  std::vector<float> vector(const std::string& name, int size);
  /// The same of any shape, with `size` values.
  std::vector<float> flat(const std::string& name, int size);
  /// All values of a tensor of plain numbers.
  std::vector<float> values(const std::string& name, const std::vector<std::int64_t>& shape);

  /// Whether any matrix so far was trellis-coded.
  bool read_trellis() const { return read_trellis_; }
  /// Bytes of all tensors.
  std::size_t bytes() const;
  /// Bytes of private memory that matrices took so far.
  std::size_t packed_bytes() const { return packed_bytes_; }
  /// What a reader of headers found wrong.
  const std::vector<std::string>& faults() const { return faults_; }
  /// Throws `LoadError` with all that was found wrong, and `fault` after it if there is one.
  [[noreturn]] void fail_with(const std::string& fault = {});
  /// Names of the tensors that hold something and were not read, in file order.
  std::vector<std::string> unread() const;

 private:
  /// What `read` returns; where headers alone are read and it fails, what `substitute` returns.
  template <class Read, class Substitute>
  auto attempt(const std::string& name, std::int64_t extent, const Read& read,
               const Substitute& substitute);
  /// Takes down a fault of a tensor of which some extent is as large as given, and counts it and
  /// those of its scheme as read.
  void record(const std::string& name, std::int64_t extent, const std::string& fault);
  [[noreturn]] void fail_value(const std::string& name, const std::string& place) const;
  /// The matrix of a part that is not transposed, its tensors counting as read.
  quantization::StoredMatrix find_stored(const std::string& name, const MatrixPart& part);
  kernels::PackedMatrix pack_stored(const std::string& name, const MatrixPart& part);
  kernels::PackedMatrix read_headers(const std::string& name, const MatrixPart& part);
  kernels::PackedMatrix pack_transposed(const std::string& name, const MatrixPart& part);
  std::vector<float> read_values(const std::string& name, const std::vector<std::int64_t>& shape);
  /// Of any part's rows; `name` is for messages.
  void check_finite(const std::string& name, const kernels::PackedMatrix& matrix,
                    const MatrixPart& part) const;
  const arrays::TensorView& take_part(const std::string& name, const MatrixPart& part);
  const arrays::TensorView& take(const std::string& name, const std::vector<std::int64_t>& shape);

  std::shared_ptr<const arrays::TensorFile> file_;
  quantization::WeightSchemes schemes_;
  WeightPlace place_;
  std::size_t packed_bytes_ = 0;
  std::vector<std::string> faults_;
  bool check_values_ = false;
  bool read_trellis_ = false;
  std::set<std::string, std::less<>> read_;
};

/// The transposed matrix [columns, rows]: plain numbers in their own type, others in f16.
kernels::PackedMatrix transpose(const kernels::PackedMatrix& matrix);

/// The values as an f32 array of one dimension.
mlx::core::array to_array(const std::vector<float>& values);

}  // namespace espalier::layers
