#include "kernels/packed_matrix.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/band_packing.h"
#include "kernels/block_codes.h"
#include "kernels/huge_pages.h"

namespace espalier::kernels {

namespace mx = mlx::core;
using arrays::StorageType;

namespace {

/// Inputs that are packed of every row of a band before the next ones, so that what they become
/// stays in the first-level cache.
constexpr int piece_inputs = 256;

/// Copies inputs of one row of plain elements into its lane.
template <class Element>
void pack_plain_row(const std::uint8_t* source, int first, int count, int lane,
                    std::uint8_t* band) {
  const std::uint8_t* from = source + first * sizeof(Element);
  std::uint8_t* to = band + (static_cast<std::size_t>(first) * band_rows + lane) * sizeof(Element);
  for (int k = 0; k < count; ++k) {
    std::memcpy(to + static_cast<std::size_t>(k) * band_rows * sizeof(Element),
                from + k * sizeof(Element), sizeof(Element));
  }
}

/// Packs blocks first .. first + count of a row.
template <class Format>
void pack_quantized_row(const BlockReader& read, const HeaderLayout& header_layout, int row,
                        int first, int count, std::uint8_t* band) {
  // Constant where the format says so: this runs for every 32 weights of a model.
  const HeaderLayout layout = Format::fixed_header ? Format::header : header_layout;
  BlockCodes codes[piece_inputs / block_inputs];
  read(row, first, count, codes);
  for (int i = 0; i < count; ++i) {
    pack_block<Format>(codes[i], layout, first + i, row % band_rows, band);
  }
}

/// An array without elements.
mx::array no_bytes() { return mx::array(mx::allocator::malloc(0), mx::Shape{0}, mx::uint8); }

/// Fills a band, piece by piece, by `fill(row, first input, inputs, band)`.
template <class Fill>
void fill_band(const BandMatrix& matrix, const Fill& fill, int band, std::uint8_t* target) {
  const int lanes = matrix.rows_of(band);
  if (lanes < band_rows) std::memset(target, 0, matrix.stride);
  for (int first = 0; first < matrix.columns; first += piece_inputs) {
    const int count = std::min(piece_inputs, matrix.columns - first);
    for (int lane = 0; lane < lanes; ++lane) {
      fill(band * band_rows + lane, first, count, target);
    }
  }
}

/// Allocates the bands of a matrix and fills them, or keeps how to where there is an owner.
template <class Fill>
PackedMatrix pack_bands(const BandMatrix& matrix, Fill fill, std::shared_ptr<const void> owner) {
  PackedMatrix packed{no_bytes(), {matrix.type, matrix.header}, matrix.rows, matrix.columns};
  if (owner) {
    packed.source = std::make_shared<const BandSource>(BandSource{
        .bytes = static_cast<std::size_t>(matrix.bands() * matrix.stride),
        .fill = [matrix, fill = std::move(fill)](
                    int band, std::uint8_t* target) { fill_band(matrix, fill, band, target); },
        .owner = std::move(owner)});
    return packed;
  }
  packed.data = allocate_on_huge_pages(matrix.bands() * matrix.stride);
  std::uint8_t* bands = packed.data.data<std::uint8_t>();
  base::TileCounter tiles(matrix.bands());
  base::compute_pool().run([&](int) {
    for (std::size_t band; tiles.next(band);) {
      fill_band(matrix, fill, static_cast<int>(band), bands + band * matrix.stride);
    }
  });
  return packed;
}

std::string describe(const arrays::TensorView& weight) {
  std::string shape;
  for (const auto extent : weight.shape) {
    shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "Tensor '" + weight.name + "' of type " +
         std::string(arrays::storage_traits(weight.type).name) + " and shape [" + shape + "]";
}

/// Throws `LoadError` unless the tensor is a matrix whose rows are whole quantization blocks.
void check_matrix(const arrays::TensorView& weight) {
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
}

/// Rows of a tensor: all, or some of them in any order.
class TensorRows {
 public:
  TensorRows(const arrays::TensorView& weight, const std::vector<int>& rows)
      : bytes_(reinterpret_cast<const std::uint8_t*>(weight.bytes.data())),
        row_bytes_(weight.bytes.size() / static_cast<std::size_t>(weight.shape[0])),
        count_(rows.empty() ? static_cast<int>(weight.shape[0]) : static_cast<int>(rows.size())) {
    // A list for each of many thousand experts would take more memory than their headers.
    const auto gap = [](int row, int next) { return next != row + 1; };
    if (std::ranges::adjacent_find(rows, gap) != rows.end()) {
      indices_ = rows;
    } else if (!rows.empty()) {
      bytes_ += static_cast<std::size_t>(rows.front()) * row_bytes_;
    }
  }

  int count() const { return count_; }
  const std::uint8_t* operator[](int row) const {
    const int index = indices_.empty() ? row : indices_[static_cast<std::size_t>(row)];
    return bytes_ + static_cast<std::size_t>(index) * row_bytes_;
  }

 private:
  const std::uint8_t* bytes_;
  std::size_t row_bytes_;
  int count_;
  std::vector<int> indices_;  // empty: one after the other from `bytes_` on
};

template <class Element>
PackedMatrix pack_plain(const TensorRows& rows, int columns, BandType type,
                        std::shared_ptr<const void> owner) {
  return pack_bands(
      BandMatrix({type, {}}, rows.count(), columns),
      [rows](int row, int first, int count, std::uint8_t* band) {
        pack_plain_row<Element>(rows[row], first, count, row % band_rows, band);
      },
      std::move(owner));
}

}  // namespace

HeaderLayout default_header(BandType type) {
  return with_band(type, []<class Format>(const Format*) {
    if constexpr (Format::quantized) {
      return Format::header;
    } else {
      return HeaderLayout{};
    }
  });
}

BandMatrix::BandMatrix(const BandLayout& layout, int rows, int columns)
    : type(layout.type),
      header(layout.header),
      rows(rows),
      columns(columns),
      stride(with_band(type, [&]<class Format>(const Format*) {
        return band_bytes<Format>(columns, layout.header);
      })) {}

BandMatrix::BandMatrix(const PackedMatrix& matrix)
    : BandMatrix(matrix.layout, matrix.rows, matrix.columns) {
  source = matrix.source;
  if (matrix.trellis) {
    throw std::invalid_argument("[BandMatrix] expected a matrix that is not trellis-coded");
  }
}

const std::uint8_t* BandMatrix::make_band(int index) const {
  struct alignas(64) Line {
    std::uint8_t bytes[64];
  };
  thread_local std::vector<Line> lines;
  const auto needed = static_cast<std::size_t>(stride) / sizeof(Line) + 1;
  if (lines.size() < needed) lines.resize(needed);
  source->fill(index, lines.front().bytes);
  return lines.front().bytes;
}

std::size_t bytes_once_packed(const BandLayout& layout, int rows, int columns) {
  const BandMatrix matrix(layout, rows, columns);
  return static_cast<std::size_t>(matrix.bands() * matrix.stride);
}

bool BandMatrix::takes_integers() const {
  return with_band(type, []<class Format>(const Format*) {
    if constexpr (Format::quantized) {
      return integer_codes<Format>;
    } else {
      return false;
    }
  });
}

bool can_pack(StorageType type) {
  return type == StorageType::f32 || type == StorageType::f16 || type == StorageType::bf16 ||
         gguf_layout(type).has_value();
}

BandLayout packed_layout(StorageType type) {
  switch (type) {
    case StorageType::f32:
      return {BandType::f32, {}};
    case StorageType::f16:
      return {BandType::f16, {}};
    case StorageType::bf16:
      return {BandType::bf16, {}};
    default:
      return gguf_layout(type).value();
  }
}

void check_packable(const arrays::TensorView& weight) {
  if (!can_pack(weight.type)) {
    throw base::LoadError(describe(weight) +
                          " cannot be used as a matrix: its type is not supported.");
  }
  check_matrix(weight);
}

PackedMatrix pack(const arrays::TensorView& weight, const std::vector<int>& indices,
                  std::shared_ptr<const void> owner) {
  check_packable(weight);
  const TensorRows rows(weight, indices);
  const auto columns = static_cast<int>(weight.shape[1]);
  const BandLayout layout = packed_layout(weight.type);
  if (layout.type == BandType::f32) {
    return pack_plain<float>(rows, columns, layout.type, std::move(owner));
  }
  if (layout.type == BandType::f16) {
    return pack_plain<Half>(rows, columns, layout.type, std::move(owner));
  }
  if (layout.type == BandType::bf16) {
    return pack_plain<Bfloat16>(rows, columns, layout.type, std::move(owner));
  }
  if (const RowPacker pack_row = gguf_row_packer(weight.type)) {
    return pack_bands(
        BandMatrix(layout, rows.count(), columns),
        [pack_row, rows](int row, int first, int count, std::uint8_t* band) {
          pack_row(rows[row], first / block_inputs, count / block_inputs, row % band_rows, band);
        },
        std::move(owner));
  }
  return pack_blocks(
      layout, rows.count(), columns,
      [type = weight.type, rows](int row, int first, int count, BlockCodes* codes) {
        read_gguf_blocks(type, rows[row], first, count, codes);
      },
      std::move(owner));
}

PackedMatrix shape_alone(int rows, int columns, std::size_t bytes) {
  PackedMatrix matrix{no_bytes(), {BandType::f32}, rows, columns};
  matrix.source = std::make_shared<const BandSource>(BandSource{.bytes = bytes});
  return matrix;
}

PackedMatrix pack_blocks(const BandLayout& layout, int rows, int columns, const BlockReader& read,
                         std::shared_ptr<const void> owner) {
  if (rows < 1 || columns < 1 || columns % block_inputs != 0) {
    throw std::invalid_argument("[pack_blocks] expected rows of a multiple of 32 inputs");
  }
  return with_band(layout.type, [&]<class Format>(const Format*) -> PackedMatrix {
    if constexpr (Format::quantized) {
      return pack_bands(
          BandMatrix(layout, rows, columns),
          [read, header = layout.header](int row, int first, int count, std::uint8_t* band) {
            pack_quantized_row<Format>(read, header, row, first / block_inputs,
                                       count / block_inputs, band);
          },
          std::move(owner));
    } else {
      throw std::invalid_argument("[pack_blocks] expected a quantized format");
    }
  });
}

mx::array unpack(const PackedMatrix& weight) {
  if (weight.trellis) {
    return expand_trellis(*weight.trellis, mx::float32);
  }
  const BandMatrix matrix(weight);
  const auto& format = linear_cpu().format(matrix.type);
  const int columns = matrix.columns;
  mx::array result(mx::allocator::malloc(sizeof(float) * matrix.rows * columns),
                   mx::Shape{matrix.rows, columns}, mx::float32);
  auto* values = result.data<float>();
  base::TileCounter tiles(matrix.bands());
  base::compute_pool().run([&](int) {
    std::vector<float> panel(static_cast<std::size_t>(columns) * band_rows);
    for (std::size_t band; tiles.next(band);) {
      format.dequantize(matrix.shape(), matrix.band(weight.data, band), 0, columns, panel.data());
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

namespace {

/// Values of a trellis are finite; their scales need not be.
std::optional<std::pair<int, int>> find_non_finite_scale(const TrellisMatrix& matrix) {
  const auto* scales = matrix.scales.data<float>();
  for (int i = 0; i < static_cast<int>(matrix.scales.size()); ++i) {
    if (!std::isfinite(scales[i])) {
      return matrix.format.axis == 1 ? std::pair(i, 0) : std::pair(0, i);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::pair<int, int>> find_non_finite(const PackedMatrix& weight) {
  if (weight.trellis) {
    return find_non_finite_scale(*weight.trellis);
  }
  const BandMatrix matrix(weight);
  const auto& format = linear_cpu().format(matrix.type);
  constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> first_found = none;
  base::TileCounter tiles(matrix.bands());
  base::compute_pool().run([&](int) {
    std::vector<float> panel(static_cast<std::size_t>(piece_inputs) * band_rows);
    for (std::size_t band; tiles.next(band);) {
      for (int first = 0; first < matrix.columns; first += piece_inputs) {
        const int count = std::min(piece_inputs, matrix.columns - first);
        const int index = static_cast<int>(band);
        format.dequantize(matrix.shape(), matrix.band(weight.data, index), first, count,
                          panel.data());
        for (int i = 0; i < count * band_rows; ++i) {
          const std::int64_t row = static_cast<std::int64_t>(band) * band_rows + i % band_rows;
          if (!std::isfinite(panel[i]) && row < matrix.rows) {
            const std::int64_t place = row * matrix.columns + first + i / band_rows;
            std::int64_t known = first_found;
            while (place < known && !first_found.compare_exchange_weak(known, place)) {
            }
          }
        }
      }
    }
  });
  if (first_found == none) {
    return std::nullopt;
  }
  return std::pair(static_cast<int>(first_found / matrix.columns),
                   static_cast<int>(first_found % matrix.columns));
}

}  // namespace espalier::kernels
