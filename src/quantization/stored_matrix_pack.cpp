#include "base/error.h"
#include "kernels/trellis.h"
#include "quantization/stored_matrix.h"

namespace espalier::quantization {
namespace {

kernels::PackedMatrix pack_trellis_rows(const StoredMatrix::Trellis& stored,
                                        const std::vector<int>& rows) {
  kernels::TrellisMatrix matrix = kernels::pack_trellis(stored.codes, stored.scales, stored.format);
  matrix.contract = stored.contract;
  const auto count = static_cast<int>(rows.size());
  if (count == matrix.rows && rows.front() == 0) {
    return kernels::pack(std::move(matrix));
  }
  const int step = stored.format.axis == 1 ? 1 : kernels::trellis_block_weights;
  const int even = step * (stored.format.axis == 0 && stored.format.half_bit ? 2 : 1);
  if (rows.back() - rows.front() + 1 != count || rows.front() % even != 0 || count % step != 0) {
    throw base::LoadError("tensor '" + stored.codes.name +
                          "' is trellis-coded, and what is needed of it are outputs that cannot be "
                          "taken apart from the others.");
  }
  return kernels::pack(kernels::trellis_rows(matrix, rows.front(), count));
}

}  // namespace

kernels::PackedMatrix pack(const StoredMatrix& matrix, const std::vector<int>& rows, int columns) {
  if (matrix.trellis) {
    return pack_trellis_rows(*matrix.trellis, rows);
  }
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
