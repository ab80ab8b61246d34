#pragma once

#include <cstdint>
#include <optional>

#include "kernels/linear.h"
#include "kernels/linear_cpu.h"

namespace espalier::kernels {

/// The band format of a storage type, if it can be packed.
std::optional<BandType> band_type(arrays::StorageType type);

/// Shape and format of a packed matrix; with its `data`, all there is to know.
struct BandMatrix {
  BandType type;
  int rows;
  int columns;

  explicit BandMatrix(const PackedMatrix& matrix);
  BandMatrix(BandType type, int rows, int columns) : type(type), rows(rows), columns(columns) {}

  int bands() const { return (rows + band_rows - 1) / band_rows; }
  bool quantized() const;
  /// Bytes from one band to the next.
  std::int64_t stride() const;
  /// Output rows of a band: 16 but in the last one.
  int rows_of(int band) const;
  /// Where a band lies in the `data` array of the matrix.
  const std::uint8_t* band(const mlx::core::array& data, int index) const;
};

}  // namespace espalier::kernels
