#include "quantization/stored_matrix.h"

namespace espalier::quantization {

kernels::PackedMatrix pack(const StoredMatrix& matrix, const std::vector<int>& rows, int columns) {
  const auto count = static_cast<int>(rows.size());
  if (!matrix.whole) {
    kernels::PackedMatrix packed = kernels::pack_blocks(
        matrix.layout, count, columns,
        [&](int row, int first, int blocks, kernels::BlockCodes* codes) {
          matrix.read(rows[static_cast<std::size_t>(row)], first, blocks, codes);
        });
    packed.activations = matrix.activations;
    return packed;
  }
  arrays::TensorView part = *matrix.whole;
  const std::size_t row_bytes = part.bytes.size() / static_cast<std::size_t>(part.shape[0]);
  part.shape[0] = count;
  std::vector<std::byte> copied;
  if (rows.back() - rows.front() + 1 == count) {
    part.bytes = part.bytes.subspan(row_bytes * static_cast<std::size_t>(rows.front()),
                                    row_bytes * rows.size());
  } else {
    for (const int row : rows) {
      const auto source = part.bytes.subspan(row_bytes * static_cast<std::size_t>(row), row_bytes);
      copied.insert(copied.end(), source.begin(), source.end());
    }
    part.bytes = copied;
  }
  return kernels::pack(part);
}

}  // namespace espalier::quantization
