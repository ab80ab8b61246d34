#include "kernels/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/block_codes.h"
#include "kernels/huge_pages.h"

namespace espalier::kernels {

namespace mx = mlx::core;
using arrays::StorageType;

namespace {

/// Copies one row of plain elements into its lane.
template <class Element>
void pack_row(const Element* source, int columns, int lane, std::uint8_t* band) {
  auto* target = reinterpret_cast<Element*>(band) + lane;
  for (int k = 0; k < columns; ++k) {
    target[static_cast<std::ptrdiff_t>(k) * band_rows] = source[k];
  }
}

/// Writes one quantization block into its lane. The band starts zeroed.
template <class Format>
void pack_block(const BlockCodes& source, int lane, std::uint8_t* header, std::uint8_t* block) {
  std::memcpy(header + lane * 2, &source.scale, 2);
  if constexpr (Format::has_minimum) {
    std::memcpy(header + (band_rows + lane) * 2, &source.minimum, 2);
  }
  if constexpr (Format::sub_scales != SubScales::none) {
    block[lane] = source.sub_scales[0];
    block[band_rows + lane] = source.sub_scales[1];
  }
  std::uint8_t* low = block + Format::sub_scale_bytes + lane * 4;
  std::uint8_t* high = low + Format::low_bytes;
  for (int k = 0; k < block_inputs; ++k) {
    const int group = k / 4;
    const int code = source.codes[k];
    if constexpr (Format::low_bits == 8) {
      low[group * group_bytes + k % 4] = static_cast<std::uint8_t>(code);
    } else {
      low[group / 2 * group_bytes + k % 4] |= (code & 15) << (group % 2 * 4);
    }
    if constexpr (Format::high_bits == 1) {
      high[k % 4] |= (code >> 4) << group;
    } else if constexpr (Format::high_bits == 2) {
      high[group / 4 * group_bytes + k % 4] |= (code >> 4) << (group % 4 * 2);
    }
  }
}

template <class Format>
void pack_quantized_row(StorageType type, const std::uint8_t* source, int columns, int lane,
                        std::uint8_t* band) {
  for (int k = 0; k < columns; k += block_inputs) {
    const int index = k / block_inputs;
    std::uint8_t* header = band + index / Format::blocks_per_header * Format::stride;
    std::uint8_t* block =
        header + Format::header_bytes + index % Format::blocks_per_header * Format::block_bytes;
    pack_block<Format>(read_block(type, source, index), lane, header, block);
  }
}

void pack_band(const arrays::TensorView& weight, const BandMatrix& matrix, int index,
               std::uint8_t* band) {
  std::memset(band, 0, matrix.stride());
  const std::size_t row_bytes = weight.bytes.size() / matrix.rows;
  for (int lane = 0; lane < matrix.rows_of(index); ++lane) {
    const auto* source = reinterpret_cast<const std::uint8_t*>(weight.bytes.data()) +
                         (static_cast<std::size_t>(index) * band_rows + lane) * row_bytes;
    with_band(matrix.type, [&]<class Format>(const Format*) {
      if constexpr (Format::quantized) {
        pack_quantized_row<Format>(weight.type, source, matrix.columns, lane, band);
      } else {
        using Element = typename Format::element;
        pack_row(reinterpret_cast<const Element*>(source), matrix.columns, lane, band);
      }
    });
  }
}

std::string describe(const arrays::TensorView& weight) {
  std::string shape;
  for (const auto extent : weight.shape) {
    shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "Tensor '" + weight.name + "' of type " +
         std::string(arrays::storage_traits(weight.type).name) + " and shape [" + shape + "]";
}

BandMatrix checked_matrix(const arrays::TensorView& weight) {
  const auto type = band_type(weight.type);
  if (!type) {
    throw base::LoadError(describe(weight) +
                          " cannot be used as a matrix: its type is not supported.");
  }
  const auto fits = [](std::int64_t extent) { return extent >= 1 && extent <= (1 << 30); };
  if (weight.shape.size() != 2 || !fits(weight.shape[0]) || !fits(weight.shape[1])) {
    throw base::LoadError(describe(weight) +
                          " cannot be used as a matrix: expected two dimensions.");
  }
  const int elements = arrays::storage_traits(weight.type).elements;
  if (weight.shape[1] % elements != 0) {
    throw base::LoadError(describe(weight) +
                          " cannot be used as a matrix: expected rows of a multiple of " +
                          std::to_string(elements) + " elements.");
  }
  return {*type, static_cast<int>(weight.shape[0]), static_cast<int>(weight.shape[1])};
}

}  // namespace

std::optional<BandType> band_type(StorageType type) {
  switch (type) {
    case StorageType::f32:
      return BandType::f32;
    case StorageType::f16:
      return BandType::f16;
    case StorageType::bf16:
      return BandType::bf16;
    case StorageType::q4_0:
      return BandType::q4_0;
    case StorageType::q4_1:
      return BandType::q4_1;
    case StorageType::q5_0:
      return BandType::q5_0;
    case StorageType::q5_1:
      return BandType::q5_1;
    case StorageType::q8_0:
      return BandType::q8_0;
    case StorageType::q4_k:
      return BandType::q4_k;
    case StorageType::q5_k:
      return BandType::q5_k;
    case StorageType::q6_k:
      return BandType::q6_k;
    default:
      return std::nullopt;
  }
}

BandMatrix::BandMatrix(const PackedMatrix& matrix)
    : BandMatrix(band_type(matrix.type).value(), matrix.rows, matrix.columns) {}

bool BandMatrix::quantized() const {
  return with_band(type, []<class Format>(const Format*) { return Format::quantized; });
}

std::int64_t BandMatrix::stride() const {
  return with_band(type,
                   [this]<class Format>(const Format*) { return band_bytes<Format>(columns); });
}

int BandMatrix::rows_of(int band) const { return std::min(band_rows, rows - band * band_rows); }

const std::uint8_t* BandMatrix::band(const mx::array& data, int index) const {
  return data.data<std::uint8_t>() + index * stride();
}

bool can_pack(StorageType type) { return band_type(type).has_value(); }

PackedMatrix pack(const arrays::TensorView& weight) {
  const BandMatrix matrix = checked_matrix(weight);
  mx::array data = allocate_on_huge_pages(matrix.bands() * matrix.stride());
  std::uint8_t* bands = data.data<std::uint8_t>();
  base::TileCounter tiles(matrix.bands());
  base::compute_pool().run([&](int) {
    for (std::size_t band; tiles.next(band);) {
      pack_band(weight, matrix, band, bands + band * matrix.stride());
    }
  });
  return {std::move(data), weight.type, matrix.rows, matrix.columns};
}

mx::array unpack(const PackedMatrix& weight) {
  const BandMatrix matrix(weight);
  const auto& format = linear_cpu().formats[static_cast<int>(matrix.type)];
  const int columns = matrix.columns;
  mx::array result(mx::allocator::malloc(sizeof(float) * matrix.rows * columns),
                   mx::Shape{matrix.rows, columns}, mx::float32);
  auto* values = result.data<float>();
  base::TileCounter tiles(matrix.bands());
  base::compute_pool().run([&](int) {
    std::vector<float> panel(static_cast<std::size_t>(columns) * band_rows);
    for (std::size_t band; tiles.next(band);) {
      format.dequantize(matrix.band(weight.data, band), 0, columns, panel.data());
      for (int lane = 0; lane < matrix.rows_of(band); ++lane) {
        float* row = values + (static_cast<std::ptrdiff_t>(band) * band_rows + lane) * columns;
        for (int k = 0; k < columns; ++k) {
          row[k] = panel[static_cast<std::size_t>(k) * band_rows + lane];
        }
      }
    }
  });
  return result;
}

}  // namespace espalier::kernels
