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

/// Inputs that are packed of every row of a band before the next ones, so that what they become
/// stays in the first-level cache.
constexpr int piece_inputs = 256;

/// Copies inputs of one row of plain elements into its lane.
template <class Element>
void pack_plain(const std::uint8_t* source, int first, int count, int lane, std::uint8_t* band) {
  const std::uint8_t* from = source + first * sizeof(Element);
  std::uint8_t* to = band + (static_cast<std::size_t>(first) * band_rows + lane) * sizeof(Element);
  for (int k = 0; k < count; ++k) {
    std::memcpy(to + static_cast<std::size_t>(k) * band_rows * sizeof(Element),
                from + k * sizeof(Element), sizeof(Element));
  }
}

/// Writes the codes of 8 inputs, one in each byte of `codes`, as pair `pair` of groups of 4 inputs.
template <class Format>
void pack_codes(std::uint64_t codes, int pair, std::uint8_t* low, std::uint32_t* planes) {
  const auto store = [](std::uint8_t* target, std::uint64_t word) {
    const auto bytes = static_cast<std::uint32_t>(word);
    std::memcpy(target, &bytes, sizeof bytes);
  };
  if constexpr (Format::low_bits == 8) {
    store(low + 2 * pair * group_bytes, codes);
    store(low + (2 * pair + 1) * group_bytes, codes >> 32);
  } else {
    const std::uint64_t nibbles = codes & 0x0f0f0f0f0f0f0f0fULL;
    store(low + pair * group_bytes, nibbles | nibbles >> 28);
  }
  const std::uint64_t high = codes >> 4 & 0x0f0f0f0f0f0f0f0fULL;
  if constexpr (Format::high_bits == 1) {
    planes[0] |= static_cast<std::uint32_t>((high | high >> 31) << (2 * pair));
  } else if constexpr (Format::high_bits == 2) {
    planes[pair / 2] |= static_cast<std::uint32_t>((high | high >> 30) << (pair % 2 * 4));
  }
}

/// Writes one quantization block into its lane.
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
  std::uint32_t planes[2] = {};
  for (int pair = 0; pair < block_inputs / 8; ++pair) {
    std::uint64_t codes;
    std::memcpy(&codes, source.codes + pair * 8, sizeof codes);
    pack_codes<Format>(codes, pair, low, planes);
  }
  for (int plane = 0; plane < Format::high_bits; ++plane) {
    std::memcpy(low + Format::low_bytes + plane * group_bytes, planes + plane, sizeof planes[0]);
  }
}

template <class Format>
void pack_quantized(StorageType type, const std::uint8_t* source, int first, int count, int lane,
                    std::uint8_t* band) {
  BlockCodes codes[piece_inputs / block_inputs];
  const int first_block = first / block_inputs;
  const int blocks = count / block_inputs;
  read_blocks(type, source, first_block, blocks, codes);
  for (int i = 0; i < blocks; ++i) {
    const int index = first_block + i;
    std::uint8_t* header = band + index / Format::blocks_per_header * Format::stride;
    std::uint8_t* block =
        header + Format::header_bytes + index % Format::blocks_per_header * Format::block_bytes;
    pack_block<Format>(codes[i], lane, header, block);
  }
}

void pack_band(const arrays::TensorView& weight, const BandMatrix& matrix, int index,
               std::uint8_t* band) {
  const int lanes = matrix.rows_of(index);
  if (lanes < band_rows) std::memset(band, 0, matrix.stride());
  const std::size_t row_bytes = weight.bytes.size() / matrix.rows;
  const auto* rows = reinterpret_cast<const std::uint8_t*>(weight.bytes.data()) +
                     static_cast<std::size_t>(index) * band_rows * row_bytes;
  with_band(matrix.type, [&]<class Format>(const Format*) {
    for (int first = 0; first < matrix.columns; first += piece_inputs) {
      const int count = std::min(piece_inputs, matrix.columns - first);
      for (int lane = 0; lane < lanes; ++lane) {
        const std::uint8_t* row = rows + lane * row_bytes;
        if constexpr (Format::quantized) {
          pack_quantized<Format>(weight.type, row, first, count, lane, band);
        } else {
          pack_plain<typename Format::element>(row, first, count, lane, band);
        }
      }
    }
  });
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
