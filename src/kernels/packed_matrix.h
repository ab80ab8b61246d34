#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "kernels/linear.h"
#include "kernels/linear_cpu.h"

namespace espalier::kernels {

/// Shape and format of a packed matrix; with its `data`, all there is to know.
struct BandMatrix {
  BandType type;
  HeaderLayout header;
  int rows;
  int columns;
  /// Bytes from one band to the next.
  std::int64_t stride;
  /// Of a matrix in place.
  std::shared_ptr<const BandSource> source;

  /// Throws `std::invalid_argument` for a trellis-coded matrix, which has no bands.
  explicit BandMatrix(const PackedMatrix& matrix);
  BandMatrix(const BandLayout& layout, int rows, int columns);

  BandShape shape() const { return {columns, header}; }
  int bands() const { return (rows + band_rows - 1) / band_rows; }
  /// Whether codes are whole numbers, which integer activations can be multiplied with.
  bool takes_integers() const;
  /// Output rows of a band: 16 but in the last one.
  int rows_of(int band) const { return std::min(band_rows, rows - band * band_rows); }
  /// Where a band lies: in the `data` array of the matrix or, in place, in memory of the calling
  /// thread until its next call.
  const std::uint8_t* band(const mlx::core::array& data, int index) const {
    return source ? make_band(index) : data.data<std::uint8_t>() + index * stride;
  }

 private:
  const std::uint8_t* make_band(int index) const;
};

}  // namespace espalier::kernels
