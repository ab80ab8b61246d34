#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/huge_pages.h"
#include "kernels/linear.h"
#include "kernels/trellis.h"

namespace espalier::kernels {

namespace mx = mlx::core;
using arrays::StorageType;

namespace {

/// Bytes past the last word that the kernels may read.
constexpr std::int64_t slack_bytes = 64;

[[noreturn]] void refuse(const arrays::TensorView& tensor, const std::string& expected) {
  throw base::LoadError("tensor '" + tensor.name + "' is not a trellis-coded matrix: expected " +
                        expected + ".");
}

/// Rows and columns of S; checks everything about the two tensors.
struct StoredShape {
  std::int64_t rows;
  std::int64_t columns;
  bool interleaved;
};

StoredShape stored_shape(const arrays::TensorView& codes, const arrays::TensorView& scales,
                         const TrellisFormat& format) {
  if (format.bits < 2 || format.bits + (format.half_bit ? 1 : 0) > 4) {
    refuse(codes, "2, 2.5, 3, 3.5 or 4 bits, got " + std::to_string(format.bits) +
                      (format.half_bit ? ".5" : ""));
  }
  if (format.state_bits != 12 && format.state_bits != 16) {
    refuse(codes, "a state of 12 or 16 bits, got " + std::to_string(format.state_bits));
  }
  if (codes.type != StorageType::u32) {
    refuse(codes, "type u32");
  }
  const bool interleaved = codes.shape.size() == 3;
  std::int64_t blocks = 0;
  if (interleaved) {
    const bool plain = format.axis == 0 && format.bits == 3 && !format.half_bit &&
                       format.state_bits == 12 && format.code == TrellisCode::one_mad;
    if (!plain || codes.shape[2] != format.words(2)) {
      refuse(codes,
             "interleaved trellis blocks only with axis 0, 3 bits, L 12, code 1mad and a last "
             "dimension of 48");
    }
    blocks = 2 * codes.shape[0];
  } else if (codes.shape.size() == 2) {
    blocks = codes.shape[1] / format.words(2) * 2;
    blocks += format.words(blocks) < codes.shape[1] ? 1 : 0;
  }
  if (blocks < 1 || (!interleaved && format.words(blocks) != codes.shape[1])) {
    refuse(codes, "two dimensions, the last of the words of whole trellis blocks, " +
                      std::to_string(format.words(1)) + " for one of them");
  }
  const std::int64_t rows = codes.shape[interleaved ? 1 : 0];
  if (scales.type != StorageType::f16 || scales.shape != std::vector<std::int64_t>{rows}) {
    refuse(scales, "one f16 scale for each of " + std::to_string(rows) + " rows");
  }
  return {rows, blocks * trellis_block_weights, interleaved};
}

/// Copies the codes in the order of the kernels.
void reorder(const arrays::TensorView& codes, const TrellisFormat& format, const StoredShape& shape,
             char* target) {
  const auto* source = reinterpret_cast<const char*>(codes.bytes.data());
  if (format.axis == 1) {
    std::memcpy(target, source, codes.bytes.size());
    return;
  }
  constexpr std::int64_t word_bytes = 4;
  const std::int64_t blocks = shape.columns / trellis_block_weights;
  base::TileCounter counter(blocks);
  base::compute_pool().run([&](int) {
    for (std::size_t next; counter.next(next);) {
      const auto block = static_cast<std::int64_t>(next);
      const std::int64_t first = format.words(block);
      const std::int64_t words = format.words(block + 1) - first;
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t from = shape.interleaved
                                      ? ((block / 2 * shape.rows + row) * 2 + block % 2) * words
                                      : row * format.words(blocks) + first;
        std::memcpy(target + (first * shape.rows + row * words) * word_bytes,
                    source + from * word_bytes, words * word_bytes);
      }
    }
  });
}

/// Room for codes, and zeros behind them that the kernels may read.
mx::array allocate_codes(std::int64_t bytes) {
  mx::array codes = allocate_on_huge_pages(bytes + slack_bytes);
  std::memset(codes.data<char>() + bytes, 0, slack_bytes);
  return codes;
}

mx::array to_array(const float* values, int count) {
  mx::array array(mx::allocator::malloc(count * sizeof(float)), {count}, mx::float32);
  std::copy_n(values, count, array.data<float>());
  return array;
}

}  // namespace

TrellisMatrix pack_trellis(const arrays::TensorView& codes, const arrays::TensorView& scales,
                           const TrellisFormat& format) {
  const StoredShape shape = stored_shape(codes, scales, format);
  mx::array bytes = allocate_codes(static_cast<std::int64_t>(codes.bytes.size()));
  reorder(codes, format, shape, bytes.data<char>());
  std::vector<float> values;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    mx::float16_t scale;
    std::memcpy(&scale, scales.bytes.data() + row * sizeof scale, sizeof scale);
    values.push_back(static_cast<float>(scale));
  }
  const auto rows = static_cast<int>(shape.rows);
  const auto columns = static_cast<int>(shape.columns);
  return {.codes = std::move(bytes),
          .scales = to_array(values.data(), rows),
          .format = format,
          .rows = format.axis == 1 ? rows : columns,
          .columns = format.axis == 1 ? columns : rows};
}

TrellisMatrix trellis_rows(const TrellisMatrix& matrix, int first, int count) {
  const TrellisFormat& format = matrix.format;
  const bool along_outputs = format.axis == 0;
  const std::int64_t begin = along_outputs ? first / trellis_block_weights : first;
  const std::int64_t end = along_outputs ? (first + count) / trellis_block_weights : first + count;
  const bool whole = first % trellis_block_weights == 0 && count % trellis_block_weights == 0 &&
                     (!format.half_bit || begin % 2 == 0);
  if (first < 0 || count < 1 || first + count > matrix.rows || (along_outputs && !whole)) {
    throw std::invalid_argument("[trellis_rows] expected whole trellis blocks of the matrix");
  }
  const auto words_before = [&](std::int64_t index) {
    return along_outputs ? matrix.columns * format.words(index)
                         : index * format.words(matrix.columns / trellis_block_weights);
  };
  const std::int64_t bytes = 4 * (words_before(end) - words_before(begin));
  mx::array codes = allocate_codes(bytes);
  std::memcpy(codes.data<char>(), matrix.codes.data<char>() + 4 * words_before(begin), bytes);
  TrellisMatrix part = matrix;
  part.codes = std::move(codes);
  part.rows = count;
  if (!along_outputs) {
    part.scales = to_array(matrix.scales.data<float>() + first, count);
  }
  return part;
}

PackedMatrix pack(TrellisMatrix matrix) {
  return {.data = matrix.codes,
          .layout = {BandType::f32},
          .rows = matrix.rows,
          .columns = matrix.columns,
          .activations = ActivationFormat::int15,
          .trellis = std::move(matrix)};
}

}  // namespace espalier::kernels
