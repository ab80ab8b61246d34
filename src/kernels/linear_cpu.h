#pragma once

#include <cstdint>

#include "kernels/band_format.h"
#include "kernels/cpu_features.h"
#include "kernels/element.h"

namespace espalier::kernels {

/// The formats that a matrix can be packed in, in the order of `LinearCpu::formats`.
enum class BandType { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };
inline constexpr int band_types = 11;

/// Calls `function` with a null `const Format*` of the band format.
template <class Function>
auto with_band(BandType type, Function&& function) {
  switch (type) {
    case BandType::f16:
      return function(static_cast<const BandF16*>(nullptr));
    case BandType::bf16:
      return function(static_cast<const BandBf16*>(nullptr));
    case BandType::q4_0:
      return function(static_cast<const BandQ4_0*>(nullptr));
    case BandType::q4_1:
      return function(static_cast<const BandQ4_1*>(nullptr));
    case BandType::q5_0:
      return function(static_cast<const BandQ5_0*>(nullptr));
    case BandType::q5_1:
      return function(static_cast<const BandQ5_1*>(nullptr));
    case BandType::q8_0:
      return function(static_cast<const BandQ8_0*>(nullptr));
    case BandType::q4_k:
      return function(static_cast<const BandQ4K*>(nullptr));
    case BandType::q5_k:
      return function(static_cast<const BandQ5K*>(nullptr));
    case BandType::q6_k:
      return function(static_cast<const BandQ6K*>(nullptr));
    default:
      return function(static_cast<const BandF32*>(nullptr));
  }
}

/// One row of activations on its way into a product: [columns] elements of `type`, RMS-normalized
/// when `norm_weight` [columns] is given.
struct ActivationRow {
  const void* data;
  ElementType type;
  int columns;
  const float* norm_weight;
  float norm_eps;
};

enum class Activation { none, silu, gelu_tanh, gelu_erf, relu };

/// The end of a product for the rows of one band: from sums in f32 to stored outputs.
struct OutputTile {
  const float* sums;  // [rows, 16]
  const float* up;    // [rows, 16] or null: result = activation(sums) * up
  const float* bias;  // [lanes] or null, added to sums
  const float* up_bias;
  Activation activation;  // with `up` only
  const void* residual;   // [rows, stride] of residual_type or null
  void* output;           // [rows, stride] of output_type
  std::int64_t stride;    // elements
  int rows;
  int lanes;  // outputs of this band, 16 but in a last band
  ElementType residual_type;
  ElementType output_type;
};

/// The kernels of `linear` for one instruction set. Pointers need no alignment.
struct LinearCpu {
  struct Format {
    /// sums [rows, 16] = the band's rows times `rows` rows of int8 activations, each of columns /
    /// 32 blocks. Quantized formats only.
    void (*multiply_int8)(const std::uint8_t* band, int columns, const ActivationBlock* x, int rows,
                          float* sums);
    /// The same with f32 activations [rows, columns].
    void (*multiply_f32)(const std::uint8_t* band, int columns, const float* x, int rows,
                         float* sums);
    /// values [count, 16] = inputs first .. first + count of each row of the band; both multiples
    /// of 32 for quantized formats.
    void (*dequantize)(const std::uint8_t* band, int first, int count, float* values);
  };
  Format formats[band_types];

  void (*quantize_row)(const ActivationRow& row, ActivationBlock* blocks);
  void (*convert_row)(const ActivationRow& row, float* values);
  void (*finish)(const OutputTile& tile);
};

const LinearCpu& linear_cpu_scalar();
const LinearCpu& linear_cpu_avx2();
const LinearCpu& linear_cpu_avx512();

/// Those of `instruction_set()`.
const LinearCpu& linear_cpu();

}  // namespace espalier::kernels
