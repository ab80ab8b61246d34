#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/linear_cpu.h"
#include "kernels/rms_norm_row.h"
#include "kernels/vector_math.h"

/// The kernels of `LinearCpu` as templates over lanes `V` (see `ScalarLanes`) and integer dot
/// products `Dot`:
///   static constexpr int tile_lanes;     // output rows per register tile, a multiple of V::width
///   static constexpr int tile_rows;      // activation rows per register tile
///   static constexpr int signed_offset;  // what `add_signed` adds to each weight
///   struct Sum {                         // one dot product per lane
///     void add(Int codes, Int x);             // + 4 unsigned codes times 4 signed x
///     void add_signed(Int values, Int x);     // + 4 (signed weights + signed_offset) times 4 x
///     void fold();                            // before 16 bits could overflow
///     void fold_scaled(Int scale);            // the same, multiplying what came since the last
///     one Int total();
///   };
namespace espalier::kernels {

/// Calls function(integral_constant<int, 0>) ... function(integral_constant<int, count - 1>).
template <int count, class Function>
[[gnu::always_inline]] inline void unroll(Function&& function) {
  [&]<int... indices>(std::integer_sequence<int, indices...>) __attribute__((always_inline)) {
    (function(std::integral_constant<int, indices>()), ...);
  }
  (std::make_integer_sequence<int, count>());
}

/// A quantization block of a band, seen by `V::width` of its rows.
template <class V, class Format>
struct BlockView {
  using Float = typename V::Float;
  using Int = typename V::Int;
  /// How many additions of a group's 2 products of 8 bits each stay within 16 bits.
  static constexpr int groups_per_fold = 8 >> Format::high_bits;

  const std::uint8_t* header;
  const std::uint8_t* block;
  int lane;  // first of the rows

  Float header_scale() const { return V::load(reinterpret_cast<const Half*>(header) + lane); }
  Float header_minimum() const {
    return V::load(reinterpret_cast<const Half*>(header) + band_rows + lane);
  }
  Int half_scale(int half) const {
    return V::load_int(reinterpret_cast<const std::int8_t*>(block) + half * band_rows + lane);
  }
  /// The scale of the integer sums.
  Float scale() const {
    if constexpr (Format::sub_scales == SubScales::per_block) {
      return V::mul(header_scale(), V::to_float(V::load_int(block + lane)));
    } else {
      return header_scale();
    }
  }
  Float minimum() const {
    if constexpr (Format::sub_scales == SubScales::per_block) {
      return V::mul(header_minimum(), V::to_float(V::load_int(block + band_rows + lane)));
    } else {
      return header_minimum();
    }
  }

  /// The 4 codes of a group for each row, as bytes.
  template <int group>
  Int codes() const {
    const std::uint8_t* low = block + Format::sub_scale_bytes + lane * 4;
    if constexpr (Format::low_bits == 8) {
      return load_group(low + group * group_bytes);
    } else {
      const Int pair = load_group(low + group / 2 * group_bytes);
      const Int nibbles = V::and_int(group % 2 == 0 ? pair : V::template shift_right<4>(pair),
                                     V::set_int(0x0F0F0F0F));
      if constexpr (Format::high_bits == 0) {
        return nibbles;
      } else {
        return V::or_int(nibbles, high_codes<group>(low + Format::low_bytes));
      }
    }
  }

 private:
  static Int load_group(const std::uint8_t* p) {
    return V::load_int(reinterpret_cast<const std::int32_t*>(p));
  }

  /// The bits above the low four, in place.
  template <int group>
  static Int high_codes(const std::uint8_t* planes) {
    constexpr bool one_bit = Format::high_bits == 1;
    const Int plane = load_group(planes + (one_bit ? 0 : group / 4 * group_bytes));
    constexpr int position = one_bit ? group : 2 * (group % 4);
    const Int mask = V::set_int(one_bit ? 0x10101010 : 0x30303030);
    if constexpr (position <= 4) {
      return V::and_int(V::template shift_left<4 - position>(plane), mask);
    } else {
      return V::and_int(V::template shift_right<position - 4>(plane), mask);
    }
  }
};

/// Inputs 4 group + index of each row, from `BlockView::codes`.
template <class V, class Format, int index>
inline typename V::Float code_value(typename V::Int codes) {
  if constexpr (Format::low_bits == 8) {
    return V::to_float(
        V::template shift_right_signed<24>(V::template shift_left<24 - 8 * index>(codes)));
  } else {
    const auto code = V::and_int(V::template shift_right<8 * index>(codes), V::set_int(0xFF));
    return V::to_float(V::sub_int(code, V::set_int(Format::offset)));
  }
}

template <class V, class Format>
void dequantize_block(const std::uint8_t* header, const std::uint8_t* block, float* values) {
  for (int lane = 0; lane < band_rows; lane += V::width) {
    const BlockView<V, Format> view{header, block, lane};
    unroll<8>([&](auto group) {
      const auto codes = view.template codes<group>();
      auto scale = view.scale();
      if constexpr (Format::sub_scales == SubScales::per_half) {
        scale = V::mul(scale, V::to_float(view.half_scale(group / 4)));
      }
      unroll<4>([&](auto index) {
        const auto code = code_value<V, Format, index>(codes);
        auto value = V::mul(scale, code);
        if constexpr (Format::has_minimum) {
          value = V::fma(scale, code, view.minimum());
        }
        V::store(values + (4 * group + index) * band_rows + lane, value);
      });
    });
  }
}

template <class V, class Format>
void dequantize(const std::uint8_t* band, int first, int count, float* values) {
  if constexpr (Format::quantized) {
    for (int k = first; k < first + count; k += block_inputs) {
      const int index = k / block_inputs;
      const std::uint8_t* header =
          band + static_cast<std::int64_t>(index / Format::blocks_per_header * Format::stride);
      const std::uint8_t* block =
          header + Format::header_bytes + index % Format::blocks_per_header * Format::block_bytes;
      dequantize_block<V, Format>(header, block, values);
      values += block_inputs * band_rows;
    }
  } else {
    const auto* elements = reinterpret_cast<const typename Format::element*>(band) +
                           static_cast<std::int64_t>(first) * band_rows;
    for (int i = 0; i < count * band_rows; i += V::width) {
      V::store(values + i, V::load(elements + i));
    }
  }
}

/// How far ahead of use weights are fetched, past the end of a band into the next one: the
/// processor's own prefetching stops at each 4 KB. One Zen 3 core then streams 12.4 GB/s of q4_1
/// instead of 11, which is what plain reading reaches.
inline constexpr int prefetch_distance = 2048;

/// Adds the products of one group of 4 inputs, by the 4 bytes of x at `values`.
template <class V, class Dot, class Format, int group>
[[gnu::always_inline]] inline void add_group(typename Dot::Sum& sum,
                                             const BlockView<V, Format>& view,
                                             typename V::Int codes, const std::int8_t* values) {
  std::int32_t x;
  __builtin_memcpy(&x, values, sizeof x);
  if constexpr (Format::low_bits == 8) {
    sum.add_signed(codes, V::set_int(x));
  } else {
    sum.add(codes, V::set_int(x));
    if constexpr ((group + 1) % BlockView<V, Format>::groups_per_fold == 0) {
      if constexpr (Format::sub_scales == SubScales::per_half) {
        sum.fold_scaled(view.half_scale(group / 4));
      } else {
        sum.fold();
      }
    }
  }
}

/// `result` plus a quantization block's product, given the sums of codes times values.
template <class V, class Dot, class Format>
[[gnu::always_inline]] inline typename V::Float add_block(typename V::Float result,
                                                          typename V::Int sum,
                                                          const BlockView<V, Format>& view,
                                                          const ActivationBlock& x) {
  constexpr int offset = Format::low_bits == 8 ? Dot::signed_offset : Format::offset;
  if constexpr (Format::sub_scales == SubScales::per_half) {
    const auto first = V::mul_int(view.half_scale(0), V::set_int(offset * x.half_sums[0]));
    const auto last = V::mul_int(view.half_scale(1), V::set_int(offset * x.half_sums[1]));
    sum = V::sub_int(sum, V::add_int(first, last));
  } else if constexpr (offset != 0) {
    sum = V::sub_int(sum, V::set_int(offset * x.sum));
  }
  result = V::fma(V::mul(view.scale(), V::set(x.scale)), V::to_float(sum), result);
  if constexpr (Format::has_minimum) {
    result = V::fma(view.minimum(), V::set(x.scaled_sum), result);
  }
  return result;
}

/// One register tile: `Dot::tile_lanes` output rows from `lane` on times `rows` activation rows
/// over all inputs.
///
/// Few rows are limited by memory, many by the number of instructions: for q4_1 on AVX2, 285 for
/// the 2048 products of 16 x 4 and a block of 32, of which 64 multiply, 56 add up their 16-bit
/// results, 32 broadcast activations, 32 unpack weights and 32 move results, for which there are no
/// registers left. Figures in products per second, of one core with the other one busy (Zen 3, 2.9
/// GHz, GCC 12, 128 rows of 1536 inputs): 16 x 2 50 G, 8 x 4 48 G, 16 x 3 57 G, 16 x 4 60 G, 16 x 6
/// 47 G; q4_1 by 16 x 4 on a quieter machine 84 G, q4_0 88 G, q5_0 71 G, q8_0 47 G (no sum of two
/// 8-bit products fits 16 bits), q6_k 53 G. AVX-512 (Xeon, 2.1 GHz), q4_1: 16 x 4 145 to 153 G, 16
/// x 8 124 to 175 G, where AVX2 makes 76 G.
template <class V, class Dot, class Format, int rows>
void multiply_tile_int8(const std::uint8_t* band, int lane, int blocks, const ActivationBlock* x,
                        bool prefetch, float* sums) {
  constexpr int segments = Dot::tile_lanes / V::width;
  typename V::Float result[segments][rows];
  for (auto& segment : result) {
    for (auto& value : segment) {
      value = V::zero();
    }
  }
  for (int index = 0; index < blocks;) {
    const std::uint8_t* header = band;
    const std::uint8_t* block = band + Format::header_bytes;
    band += Format::stride;
    if (prefetch) {
      for (int line = 0; line < Format::stride; line += 64) {
        __builtin_prefetch(header + prefetch_distance + line);
      }
    }
    for (int i = 0; i < Format::blocks_per_header; ++i, ++index, block += Format::block_bytes) {
      const ActivationBlock* activations[rows];
      for (int row = 0; row < rows; ++row) {
        activations[row] = x + static_cast<std::int64_t>(row) * blocks + index;
      }
      typename Dot::Sum sum[segments][rows];
      unroll<8>([&](auto group) __attribute__((always_inline)) {
        for (int segment = 0; segment < segments; ++segment) {
          const BlockView<V, Format> view{header, block, lane + segment * V::width};
          const auto codes = view.template codes<group>();
          for (int row = 0; row < rows; ++row) {
            add_group<V, Dot, Format, group>(sum[segment][row], view, codes,
                                             activations[row]->values + 4 * group);
          }
        }
      });
      for (int segment = 0; segment < segments; ++segment) {
        const BlockView<V, Format> view{header, block, lane + segment * V::width};
        for (int row = 0; row < rows; ++row) {
          auto& value = result[segment][row];
          value = add_block<V, Dot>(value, sum[segment][row].total(), view, *activations[row]);
        }
      }
    }
  }
  for (int segment = 0; segment < segments; ++segment) {
    for (int row = 0; row < rows; ++row) {
      V::store(sums + row * band_rows + lane + segment * V::width, result[segment][row]);
    }
  }
}

template <class V, class Dot, class Format, int tile_rows>
void multiply_rows_int8(const std::uint8_t* band, int lane, int blocks, const ActivationBlock* x,
                        int rows, bool prefetch, float* sums) {
  if constexpr (tile_rows > 0) {
    for (; rows >= tile_rows; rows -= tile_rows) {
      multiply_tile_int8<V, Dot, Format, tile_rows>(band, lane, blocks, x, prefetch, sums);
      prefetch = false;
      x += static_cast<std::int64_t>(tile_rows) * blocks;
      sums += tile_rows * band_rows;
    }
    multiply_rows_int8<V, Dot, Format, tile_rows - 1>(band, lane, blocks, x, rows, prefetch, sums);
  }
}

template <class V, class Dot, class Format>
void multiply_int8(const std::uint8_t* band, int columns, const ActivationBlock* x, int rows,
                   float* sums) {
  for (int lane = 0; lane < band_rows; lane += Dot::tile_lanes) {
    multiply_rows_int8<V, Dot, Format, Dot::tile_rows>(band, lane, columns / block_inputs, x, rows,
                                                       lane == 0, sums);
  }
}

/// sums [rows, 16] += panel [count, 16] times x [rows, stride], one input after the other.
template <class V, int rows>
void multiply_tile_f32(const float* panel, int count, const float* x, std::int64_t stride,
                       float* sums) {
  constexpr int segments = band_rows / V::width;
  typename V::Float result[rows][segments];
  for (int row = 0; row < rows; ++row) {
    for (int segment = 0; segment < segments; ++segment) {
      result[row][segment] = V::load(sums + row * band_rows + segment * V::width);
    }
  }
  for (int k = 0; k < count; ++k, panel += band_rows) {
    typename V::Float weights[segments];
    for (int segment = 0; segment < segments; ++segment) {
      weights[segment] = V::load(panel + segment * V::width);
    }
    for (int row = 0; row < rows; ++row) {
      const auto activation = V::set(x[row * stride + k]);
      for (int segment = 0; segment < segments; ++segment) {
        result[row][segment] = V::fma(weights[segment], activation, result[row][segment]);
      }
    }
  }
  for (int row = 0; row < rows; ++row) {
    for (int segment = 0; segment < segments; ++segment) {
      V::store(sums + row * band_rows + segment * V::width, result[row][segment]);
    }
  }
}

template <class V, int tile_rows>
void multiply_rows_f32(const float* panel, int count, const float* x, std::int64_t stride, int rows,
                       float* sums) {
  if constexpr (tile_rows > 0) {
    for (; rows >= tile_rows; rows -= tile_rows) {
      multiply_tile_f32<V, tile_rows>(panel, count, x, stride, sums);
      x += tile_rows * stride;
      sums += tile_rows * band_rows;
    }
    multiply_rows_f32<V, tile_rows - 1>(panel, count, x, stride, rows, sums);
  }
}

template <class V, class Format>
void multiply_f32(const std::uint8_t* band, int columns, const float* x, int rows, float* sums) {
  constexpr int panel_inputs = 128;  // 8 KB: stays in the first-level cache for all rows
  constexpr int tile_rows = V::width == 1 ? 1 : 6;
  for (int i = 0; i < rows * band_rows; ++i) {
    sums[i] = 0.0F;
  }
  alignas(64) float panel[panel_inputs * band_rows];
  for (int first = 0; first < columns; first += panel_inputs) {
    const int count = columns - first < panel_inputs ? columns - first : panel_inputs;
    dequantize<V, Format>(band, first, count, panel);
    multiply_rows_f32<V, tile_rows>(panel, count, x + first, columns, rows, sums);
  }
}

/// Calls sink(i, vector, lanes) for each vector of the row from element i on, normalized if asked
/// for; the last one may have fewer lanes, the others being 0.
template <class V, class X, class Sink>
inline void for_each_vector(const ActivationRow& row, Sink&& sink) {
  const auto* x = static_cast<const X*>(row.data);
  const bool normalize = row.norm_weight != nullptr;
  const auto scale = V::set(normalize ? rms_norm_scale<V>(x, row.columns, row.norm_eps) : 1.0F);
  const auto value = [&](const X* elements, const float* weights) {
    return normalize ? rms_norm_apply<V>(elements, weights, scale) : V::load(elements);
  };
  int i = 0;
  for (; i + V::width <= row.columns; i += V::width) {
    sink(i, value(x + i, row.norm_weight + (normalize ? i : 0)), V::width);
  }
  if (i < row.columns) {
    X elements[V::width] = {};
    float weights[V::width] = {};
    for (int j = 0; i + j < row.columns; ++j) {
      elements[j] = x[i + j];
      weights[j] = normalize ? row.norm_weight[i + j] : 0.0F;
    }
    sink(i, value(elements, weights), row.columns - i);
  }
}

template <class V>
void convert_row(const ActivationRow& row, float* values) {
  with_element(row.type, [&]<class X>(const X*) {
    for_each_vector<V, X>(row, [&](int i, typename V::Float vector, int lanes) {
      if (lanes == V::width) {
        V::store(values + i, vector);
      } else {
        float tail[V::width];
        V::store(tail, vector);
        for (int j = 0; j < lanes; ++j) {
          values[i + j] = tail[j];
        }
      }
    });
  });
}

/// Quantizes 32 values. Rows below 1e-30 become 0, so that no reciprocal overflows.
template <class V>
inline void quantize_block(const typename V::Float (&x)[block_inputs / V::width],
                           ActivationBlock& block) {
  constexpr int vectors = block_inputs / V::width;
  // As integers, magnitudes order like floats with NaN on top, so a NaN reaches the result.
  auto largest = V::as_int(V::abs(x[0]));
  for (int i = 1; i < vectors; ++i) {
    largest = V::max_int(largest, V::as_int(V::abs(x[i])));
  }
  const std::int32_t bits = V::reduce_max(largest);
  float magnitude;
  __builtin_memcpy(&magnitude, &bits, sizeof magnitude);
  const bool tiny = magnitude < 1e-30F;
  block.scale = tiny ? 0.0F : magnitude / 127.0F;
  const auto inverse = V::set(tiny ? 0.0F : 127.0F / magnitude);
  const auto magic = V::set(12582912.0F);  // 1.5 * 2^23: adding it rounds to a whole number
  typename V::Int half_sums[2] = {V::set_int(0), V::set_int(0)};
  for (int i = 0; i < vectors; ++i) {
    const auto clamped = V::min(V::max(V::mul(x[i], inverse), V::set(-127.0F)), V::set(127.0F));
    const auto whole = V::to_int(V::sub(V::add(clamped, magic), magic));
    V::store_bytes(block.values + i * V::width, whole);
    auto& sum = half_sums[i * V::width / 16];
    sum = V::add_int(sum, whole);
  }
  const std::int32_t first = V::reduce_add(half_sums[0]);
  const std::int32_t last = V::reduce_add(half_sums[1]);
  block.half_sums[0] = static_cast<std::int16_t>(first);
  block.half_sums[1] = static_cast<std::int16_t>(last);
  block.sum = first + last;
  block.scaled_sum = block.scale * static_cast<float>(block.sum);
}

template <class V>
void quantize_row(const ActivationRow& row, ActivationBlock* blocks) {
  with_element(row.type, [&]<class X>(const X*) {
    typename V::Float x[block_inputs / V::width];
    for_each_vector<V, X>(row, [&](int i, typename V::Float vector, int) {
      x[i % block_inputs / V::width] = vector;
      if ((i + V::width) % block_inputs == 0) {
        quantize_block<V>(x, blocks[i / block_inputs]);
      }
    });
  });
}

template <class V>
inline typename V::Float activate(Activation activation, typename V::Float x) {
  switch (activation) {
    case Activation::silu:
      return silu<V>(x);
    case Activation::gelu_tanh:
      return gelu_tanh<V>(x);
    case Activation::gelu_erf:
      return gelu_erf<V>(x);
    case Activation::relu:
      return V::max(x, V::zero());
    default:
      return x;
  }
}

/// Finishes one row of a tile: all 16 lanes.
template <class V, class Residual, class Output>
inline void finish_row(const OutputTile& tile, const float* bias, const float* up_bias, int row,
                       const Residual* residual, Output* output) {
  for (int lane = 0; lane < band_rows; lane += V::width) {
    auto value = V::load(tile.sums + row * band_rows + lane);
    if (bias != nullptr) {
      value = V::add(value, V::load(bias + lane));
    }
    if (tile.up != nullptr) {
      auto up = V::load(tile.up + row * band_rows + lane);
      if (up_bias != nullptr) {
        up = V::add(up, V::load(up_bias + lane));
      }
      value = V::mul(activate<V>(tile.activation, value), up);
    }
    if (residual != nullptr) {
      value = V::add(value, V::load(residual + lane));
    }
    V::store(output + lane, value);
  }
}

template <class V, class Residual, class Output>
void finish_tile(const OutputTile& tile) {
  const auto* residual = static_cast<const Residual*>(tile.residual);
  auto* output = static_cast<Output*>(tile.output);
  if (tile.lanes == band_rows) {
    for (int row = 0; row < tile.rows; ++row) {
      finish_row<V>(tile, tile.bias, tile.up_bias, row,
                    residual == nullptr ? nullptr : residual + row * tile.stride,
                    output + row * tile.stride);
    }
    return;
  }
  // The last band of a matrix: what lies beyond its outputs may not be ours to touch.
  float bias[band_rows] = {};
  float up_bias[band_rows] = {};
  for (int lane = 0; lane < tile.lanes; ++lane) {
    bias[lane] = tile.bias == nullptr ? 0.0F : tile.bias[lane];
    up_bias[lane] = tile.up_bias == nullptr ? 0.0F : tile.up_bias[lane];
  }
  for (int row = 0; row < tile.rows; ++row) {
    Residual old[band_rows] = {};
    Output result[band_rows];
    for (int lane = 0; residual != nullptr && lane < tile.lanes; ++lane) {
      old[lane] = residual[row * tile.stride + lane];
    }
    finish_row<V>(tile, tile.bias == nullptr ? nullptr : bias,
                  tile.up_bias == nullptr ? nullptr : up_bias, row,
                  residual == nullptr ? nullptr : old, result);
    for (int lane = 0; lane < tile.lanes; ++lane) {
      output[row * tile.stride + lane] = result[lane];
    }
  }
}

template <class V>
void finish(const OutputTile& tile) {
  with_element(tile.residual_type, [&]<class Residual>(const Residual*) {
    with_element(tile.output_type,
                 [&]<class Output>(const Output*) { finish_tile<V, Residual, Output>(tile); });
  });
}

template <class V, class Dot, class Format>
constexpr LinearCpu::Format format_kernels() {
  if constexpr (Format::quantized) {
    return {multiply_int8<V, Dot, Format>, multiply_f32<V, Format>, dequantize<V, Format>};
  } else {
    return {nullptr, multiply_f32<V, Format>, dequantize<V, Format>};
  }
}

template <class V, class Dot>
constexpr LinearCpu linear_kernels() {
  return {{format_kernels<V, Dot, BandF32>(), format_kernels<V, Dot, BandF16>(),
           format_kernels<V, Dot, BandBf16>(), format_kernels<V, Dot, BandQ4_0>(),
           format_kernels<V, Dot, BandQ4_1>(), format_kernels<V, Dot, BandQ5_0>(),
           format_kernels<V, Dot, BandQ5_1>(), format_kernels<V, Dot, BandQ8_0>(),
           format_kernels<V, Dot, BandQ4K>(), format_kernels<V, Dot, BandQ5K>(),
           format_kernels<V, Dot, BandQ6K>()},
          quantize_row<V>,
          convert_row<V>,
          finish<V>};
}

}  // namespace espalier::kernels
