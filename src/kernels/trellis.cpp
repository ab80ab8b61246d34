#include "kernels/trellis.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/huge_pages.h"
#include "kernels/primitive.h"
#include "kernels/trellis_cpu.h"

namespace espalier::kernels {

namespace mx = mlx::core;
using arrays::StorageType;

namespace {

/// Bytes past the last word that the kernels may read.
constexpr std::int64_t slack_bytes = 64;
/// Rows that share a decoded tile.
constexpr int most_tile_rows = 512;

int blocks_of(int inputs) {
  return (inputs + trellis_activation_block - 1) / trellis_activation_block;
}

/// One call of `trellis_linear`. Inputs: x, codes, scales.
struct TrellisWork {
  static constexpr const char* name = "espalier::trellis_linear";

  TrellisFormat format;
  TrellisActivations activations;

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const;

 private:
  struct Call;

  void prepare(const Call& call, int row, const TrellisRows& rows, float* values) const;
  void run_tile(const Call& call, const TrellisRows& rows, int first_row, int count, int unit,
                std::int32_t* tile, float* sums) const;
};

struct TrellisWork::Call {
  const TrellisCpu& cpu;
  TrellisOperand operand;
  mx::array x;
  const float* scales;
  float* output;  // [rows, outputs]
  int rows;
  bool few;
  int tile_rows;

  int units() const { return (operand.outputs + cpu.unit - 1) / cpu.unit; }
  int row_tiles() const { return (rows + tile_rows - 1) / tile_rows; }
};

void load_row(const mx::array& x, int row, int columns, float* values) {
  const std::size_t first = static_cast<std::size_t>(row) * columns;
  if (x.dtype() == mx::float32) {
    std::memcpy(values, x.data<float>() + first, columns * sizeof(float));
  } else if (x.dtype() == mx::float16) {
    std::copy_n(x.data<mx::float16_t>() + first, columns, values);
  } else {
    std::copy_n(x.data<mx::bfloat16_t>() + first, columns, values);
  }
}

void TrellisWork::prepare(const Call& call, int row, const TrellisRows& rows, float* values) const {
  const int inputs = call.operand.inputs;
  load_row(call.x, row, inputs, values);
  if (format.axis == 0) {
    for (int i = 0; i < inputs; ++i) {
      values[i] *= call.scales[i];
    }
  }
  std::fill(values + inputs, values + rows.blocks * trellis_activation_block, 0.0F);
  call.cpu.prepare(call.operand, values, activations, call.few, rows, row);
}

void TrellisWork::run_tile(const Call& call, const TrellisRows& rows, int first_row, int count,
                           int unit, std::int32_t* tile, float* sums) const {
  if (call.few) {
    call.cpu.few_rows(call.operand, rows, activations, count, unit, sums);
  } else {
    call.cpu.many_rows(call.operand, rows, first_row, count, unit, tile, sums);
  }
  const int first = unit * call.cpu.unit;
  const int outputs = std::min(call.cpu.unit, call.operand.outputs - first);
  for (int row = 0; row < count; ++row) {
    const float* from = sums + static_cast<std::int64_t>(row) * call.cpu.unit;
    float* to = call.output + static_cast<std::int64_t>(first_row + row) * call.operand.outputs;
    for (int i = 0; i < outputs; ++i) {
      const float factor =
          format.axis == 1 ? call.scales[first + i] * trellis_reciprocal : trellis_reciprocal;
      to[first + i] = from[i] * factor;
    }
  }
}

void TrellisWork::operator()(const std::vector<mx::array>& inputs,
                             std::vector<mx::array>& outputs) const {
  if (outputs[0].size() == 0) {
    return;
  }
  auto& pool = base::compute_pool();
  const TrellisHash hash = trellis_hash(format.code);
  const int rows = inputs[0].shape(0);
  Call call{.cpu = trellis_cpu(),
            .operand = {.codes = inputs[1].data<std::uint32_t>(),
                        .bits = format.bits,
                        .axis = format.axis,
                        .inputs = inputs[0].shape(1),
                        .outputs = outputs[0].shape(1),
                        .multiplier = static_cast<std::int32_t>(hash.multiplier),
                        .addend = static_cast<std::int32_t>(hash.addend),
                        .mask = (1 << format.state_bits) - 1},
            .x = row_contiguous(inputs[0]),
            .scales = inputs[2].data<float>(),
            .output = outputs[0].data<float>(),
            .rows = rows,
            .few = rows <= trellis_few_rows,
            .tile_rows = rows};
  while (!call.few && call.tile_rows > most_tile_rows / 8 &&
         (call.tile_rows > most_tile_rows || call.units() * call.row_tiles() < 4 * pool.size())) {
    call.tile_rows = (call.tile_rows + 1) / 2;
  }
  const int blocks = blocks_of(call.operand.inputs);
  const std::int64_t row_words =
      static_cast<std::int64_t>(blocks) * trellis_activation_block / (call.few ? 1 : 2);
  std::vector<std::int32_t> words(rows * row_words);
  std::vector<float> scales(static_cast<std::size_t>(rows) * blocks);
  std::vector<std::int32_t> sums(scales.size());
  const TrellisRows prepared{.words = words.data(),
                             .scales = scales.data(),
                             .sums = sums.data(),
                             .row_words = row_words,
                             .blocks = blocks};
  base::TileCounter row_counter(rows);
  base::TileCounter tiles(static_cast<std::size_t>(call.units()) * call.row_tiles());
  pool.run([&](int) {
    std::vector<float> values(static_cast<std::size_t>(blocks) * trellis_activation_block);
    for (std::size_t row; row_counter.next(row);) {
      prepare(call, static_cast<int>(row), prepared, values.data());
    }
    pool.barrier();
    std::vector<std::int32_t> tile(call.few ? 0 : trellis_activation_block / 2 * call.cpu.unit);
    std::vector<float> tile_sums(static_cast<std::size_t>(call.tile_rows) * call.cpu.unit);
    for (std::size_t at; tiles.next(at);) {
      const int first_row = static_cast<int>(at % call.row_tiles()) * call.tile_rows;
      run_tile(call, prepared, first_row, std::min(call.tile_rows, rows - first_row),
               static_cast<int>(at / call.row_tiles()), tile.data(), tile_sums.data());
    }
  });
}

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
  if (format.bits < 2 || format.bits > 4) {
    refuse(codes, "2, 3 or 4 bits, got " + std::to_string(format.bits));
  }
  if (format.state_bits != 12 && format.state_bits != 16) {
    refuse(codes, "a state of 12 or 16 bits, got " + std::to_string(format.state_bits));
  }
  if (codes.type != StorageType::u32) {
    refuse(codes, "type u32");
  }
  const bool interleaved = codes.shape.size() == 3;
  const int block_words = trellis_block_words(format.bits);
  if (interleaved) {
    if (format.axis != 0 || format.bits != 3 || codes.shape[2] != 2 * block_words) {
      refuse(codes,
             "interleaved trellis blocks only with axis 0, 3 bits and a last dimension of 48");
    }
  } else if (codes.shape.size() != 2 || codes.shape[1] % block_words != 0 || codes.shape[1] == 0) {
    refuse(codes,
           "two dimensions, the last a multiple of " + std::to_string(block_words) + " words");
  }
  const std::int64_t rows = codes.shape[interleaved ? 1 : 0];
  const std::int64_t blocks = interleaved ? 2 * codes.shape[0] : codes.shape[1] / block_words;
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
  const std::int64_t block_bytes = std::int64_t{4} * trellis_block_words(format.bits);
  const std::int64_t blocks = shape.columns / trellis_block_weights;
  base::TileCounter counter(blocks);
  base::compute_pool().run([&](int) {
    for (std::size_t next; counter.next(next);) {
      const auto block = static_cast<std::int64_t>(next);
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t from = shape.interleaved ? (block / 2 * shape.rows + row) * 2 + block % 2
                                                    : row * blocks + block;
        std::memcpy(target + (block * shape.rows + row) * block_bytes, source + from * block_bytes,
                    block_bytes);
      }
    }
  });
}

}  // namespace

TrellisMatrix pack_trellis(const arrays::TensorView& codes, const arrays::TensorView& scales,
                           const TrellisFormat& format) {
  const StoredShape shape = stored_shape(codes, scales, format);
  mx::array bytes =
      allocate_on_huge_pages(static_cast<std::int64_t>(codes.bytes.size()) + slack_bytes);
  char* target = bytes.data<char>();
  reorder(codes, format, shape, target);
  std::memset(target + codes.bytes.size(), 0, slack_bytes);
  mx::array values(mx::allocator::malloc(shape.rows * sizeof(float)),
                   {static_cast<int>(shape.rows)}, mx::float32);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    mx::float16_t scale;
    std::memcpy(&scale, scales.bytes.data() + row * sizeof scale, sizeof scale);
    values.data<float>()[row] = static_cast<float>(scale);
  }
  const auto rows = static_cast<int>(shape.rows);
  const auto columns = static_cast<int>(shape.columns);
  return {.codes = bytes,
          .scales = values,
          .format = format,
          .rows = format.axis == 1 ? rows : columns,
          .columns = format.axis == 1 ? columns : rows};
}

mx::array trellis_linear(const mx::array& x, const TrellisMatrix& weight,
                         TrellisActivations activations) {
  if (x.ndim() != 2 || x.shape(1) != weight.columns || !mx::issubdtype(x.dtype(), mx::floating)) {
    throw std::invalid_argument("[trellis_linear] expected x [T, K] of floating point numbers");
  }
  return make_node(TrellisWork{.format = weight.format, .activations = activations},
                   mx::Shape{x.shape(0), weight.rows}, mx::float32,
                   {x, weight.codes, weight.scales});
}

}  // namespace espalier::kernels
