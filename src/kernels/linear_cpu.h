#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/band_format.h"
#include "kernels/cpu_features.h"
#include "kernels/element.h"

namespace espalier::kernels {

/// Calls `function` with a null `const Format*` of the band format.
template <class Function>
auto with_band(BandType type, Function&& function) {
  using Result = decltype(function(static_cast<const BandF32*>(nullptr)));
  using Call = Result (*)(Function&);
  static constexpr auto calls = []<class... A, class... B, class... C>(
                                    FormatList<A...>, FormatList<B...>, FormatList<C...>) {
    return std::array<Call, band_types>{
        [](Function& f) -> Result { return f(static_cast<const A*>(nullptr)); }...,
        [](Function& f) -> Result { return f(static_cast<const B*>(nullptr)); }...,
        [](Function& f) -> Result { return f(static_cast<const C*>(nullptr)); }...};
  }(CommonFormats(), SmallFormats(), GroupedFormats());
  return calls[static_cast<std::size_t>(type)](function);
}

/// What a kernel must know of a matrix beside its format.
struct BandShape {
  int columns;
  HeaderLayout header;
};

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

/// The kernels of one band format.
struct FormatKernels {
  /// sums [rows, 16] = the band's rows times `rows` rows of int8 activations, each of columns / 32
  /// blocks. Null unless codes are integers.
  void (*multiply_int8)(const BandShape& shape, const std::uint8_t* band, const ActivationBlock* x,
                        int rows, float* sums);
  /// The same with 15-bit activations.
  void (*multiply_int15)(const BandShape& shape, const std::uint8_t* band,
                         const WideActivationBlock* x, int rows, float* sums);
  /// The same with f32 activations [rows, columns].
  void (*multiply_f32)(const BandShape& shape, const std::uint8_t* band, const float* x, int rows,
                       float* sums);
  /// values [count, 16] = inputs first .. first + count of each row of the band; both multiples of
  /// 32 for quantized formats.
  void (*dequantize)(const BandShape& shape, const std::uint8_t* band, int first, int count,
                     float* values);
};

/// The kernels of `linear` for one instruction set. Pointers need no alignment.
struct LinearCpu {
  std::array<FormatKernels, band_types> formats;

  const FormatKernels& format(BandType type) const { return formats[static_cast<int>(type)]; }

  void (*quantize_row)(const ActivationRow& row, ActivationBlock* blocks);
  void (*quantize_row_wide)(const ActivationRow& row, WideActivationBlock* blocks);
  void (*convert_row)(const ActivationRow& row, float* values);
  void (*finish)(const OutputTile& tile);
};

using SmallKernels = std::array<FormatKernels, SmallFormats::size>;
using GroupedKernels = std::array<FormatKernels, GroupedFormats::size>;

const SmallKernels& small_formats_scalar();
const SmallKernels& small_formats_avx2();
const SmallKernels& small_formats_avx512();
const GroupedKernels& grouped_formats_scalar();
const GroupedKernels& grouped_formats_avx2();
const GroupedKernels& grouped_formats_avx512();

const LinearCpu& linear_cpu_scalar();
const LinearCpu& linear_cpu_avx2();
const LinearCpu& linear_cpu_avx512();

/// Those of `instruction_set()`.
const LinearCpu& linear_cpu();

}  // namespace espalier::kernels
