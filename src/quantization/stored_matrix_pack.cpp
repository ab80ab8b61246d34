#include <algorithm>
#include <utility>

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

kernels::PackedMatrix pack(const StoredMatrix& matrix, const std::vector<int>& rows, int columns,
                           std::shared_ptr<const void> owner) {
  if (matrix.trellis) {
    return pack_trellis_rows(*matrix.trellis, rows);
  }
  if (matrix.whole) {
    return kernels::pack(*matrix.whole, rows, std::move(owner));
  }
  const auto count = static_cast<int>(rows.size());
  kernels::BlockReader read = matrix.read;
  const auto gap = [](int row, int next) { return next != row + 1; };
  if (std::ranges::adjacent_find(rows, gap) != rows.end()) {
    read = [rows, all = matrix.read](int row, int first, int blocks, kernels::BlockCodes* codes) {
      all(rows[static_cast<std::size_t>(row)], first, blocks, codes);
    };
  } else if (rows.front() != 0) {
    read = [begin = rows.front(), all = matrix.read](int row, int first, int blocks,
                                                     kernels::BlockCodes* codes) {
      all(begin + row, first, blocks, codes);
    };
  }
  kernels::PackedMatrix packed =
      kernels::pack_blocks(matrix.layout, count, columns, read, std::move(owner));
  packed.activations = matrix.activations;
  return packed;
}

std::size_t packed_bytes(const StoredMatrix& matrix, int rows, int columns) {
  if (matrix.trellis) {
    const kernels::TrellisFormat& format = matrix.trellis->format;
    const auto [coded, along] =
        format.axis == 1 ? std::pair(rows, columns) : std::pair(columns, rows);
    constexpr std::int64_t number_bytes = 4;
    return static_cast<std::size_t>(coded * number_bytes *
                                    (format.words(along / kernels::trellis_block_weights) + 1));
  }
  if (matrix.whole) kernels::check_packable(*matrix.whole);
  const kernels::BandLayout layout =
      matrix.whole ? kernels::packed_layout(matrix.whole->type) : matrix.layout;
  return kernels::bytes_once_packed(layout, rows, columns);
}

}  // namespace espalier::quantization
