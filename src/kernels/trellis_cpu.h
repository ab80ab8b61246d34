#pragma once

#include <cstdint>

#include "kernels/trellis.h"

namespace espalier::kernels {

/// A coded matrix as the kernels see it. With `words(b)` those of a row's first b trellis blocks,
/// trellis block b of output n (axis 1) begins at word n * words(blocks) + words(b); that of input
/// k for output block g (axis 0) at inputs * words(g) + k * (words(g + 1) - words(g)). 64 bytes
/// past the last word can be read.
struct TrellisOperand {
  const std::uint32_t* codes;
  TrellisFormat format;
  int inputs;
  int outputs;
  std::int32_t multiplier;
  std::int32_t addend;
  std::int32_t mask;  // of the state

  /// Of a matrix whose codes are there.
  explicit TrellisOperand(const TrellisMatrix& matrix);

  /// Activation blocks of a row.
  int blocks() const { return (inputs + trellis_activation_block - 1) / trellis_activation_block; }
  /// Trellis block `block` of an output (axis 1), or of an input (axis 0).
  [[gnu::always_inline]] const std::uint32_t* output_block(std::int64_t output,
                                                           std::int64_t block) const {
    return codes + output * format.words(inputs / trellis_block_weights) + format.words(block);
  }
  [[gnu::always_inline]] const std::uint32_t* input_block(std::int64_t input,
                                                          std::int64_t block) const {
    return codes + inputs * format.words(block) +
           input * (trellis_block_words(format.block_bits(block)));
  }
};

/// Rows of activations as integers: a * scale per activation block. `words` holds, for few rows,
/// one integer per input ready for the dot product at hand, in the order of the weights in the
/// lanes; for many rows pairs of neighbouring inputs as two 16-bit numbers, zeros after the last.
struct TrellisRows {
  std::int32_t* words;  // [rows, row_words]
  float* scales;        // [rows, blocks]
  /// [rows, blocks, 2]: 510 times the sum of the integers of each half of an activation block.
  std::int32_t* centres;
  std::int64_t row_words;
  int blocks;
};

/// Rows that share one decoding of weights in registers; more go through a decoded tile.
inline constexpr int trellis_few_rows = 4;

/// The trellis kernels of one instruction set. A unit is `unit` neighbouring outputs; `sums`
/// [rows, unit] receives the sums over activation blocks, before the last factor.
struct TrellisCpu {
  int unit;
  /// Row `row` of `rows` from `values` [inputs rounded up to 16, zeros at the end].
  void (*prepare)(const TrellisOperand& operand, const float* values,
                  TrellisActivations activations, bool few, const TrellisRows& rows, int row);
  void (*few_rows)(const TrellisOperand& operand, const TrellisRows& x,
                   TrellisActivations activations, int rows, int unit, float* sums);
  /// Rows first_row .. first_row + rows; `tile` is scratch of 128 * unit words.
  void (*many_rows)(const TrellisOperand& operand, const TrellisRows& x, int first_row, int rows,
                    int unit, std::int32_t* tile, float* sums);
};

const TrellisCpu& trellis_cpu_scalar();
const TrellisCpu& trellis_cpu_avx2();
const TrellisCpu& trellis_cpu_avx512();

/// Those of `instruction_set()`.
const TrellisCpu& trellis_cpu();

}  // namespace espalier::kernels
