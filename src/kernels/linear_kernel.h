#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "kernels/activation_rows.h"
#include "kernels/band_view.h"
#include "kernels/linear_cpu.h"
#include "kernels/linear_finish.h"

/// The kernels of `LinearCpu` as templates over lanes `V` (see `ScalarLanes`) and integer dot
/// products `Dot`:
///   static constexpr int tile_lanes;     // output rows per register tile, a multiple of V::width
///   static constexpr int tile_rows;      // activation rows per register tile
///   static constexpr int signed_offset;  // what `add_signed` adds to each weight
///   static constexpr bool keeps_halves;  // whether halves of a block are scaled as floats
///   struct Sum {                         // one dot product per lane
///     void add(Int codes, Int x);             // + 4 unsigned codes times 4 signed x
///     void add_signed(Int values, Int x);     // + 4 (signed weights + signed_offset) times 4 x
///     void fold();                            // before 16 bits could overflow
///     void fold_scaled(Int scale);            // the same, multiplying what came since the last
///                                             // one; or, with `keeps_halves`:
///     void end_half();                        // what follows is the second half
///     Int first_half();
///     Int total();                            // of what `end_half` did not put aside
///   };
///   struct WideSum {                     // the same for activations of 16 bits
///     void add(Int codes, Int x);             // + 2 signed words of codes times 2 of x
///     Int total();
///   };
namespace espalier::kernels {

/// How far ahead of use weights are fetched, past the end of a band into the next one: the
/// processor's own prefetching stops at each 4 KB. One Zen 3 core then streams 16 GB/s of q4_1 and
/// q8_0, which is what plain reading reaches, instead of 12 to 14 (pieces of 1 MB, the quickest
/// 2%); 3 KB is like 2, 4 KB and fetching into the second-level cache alone are up to a tenth
/// slower. One Xeon core 12 GB/s instead of 9.5; 1 to 8 KB are alike there. Zen 4 does better by
/// itself (`fetches_weights_ahead`): 96 MB in bands of 576 inputs on huge pages, variants in turns,
/// medians in GB/s without, with 2 KB, 4 KB: q4_1 by one core 29.8, 26.1, 28.3; q8_0 by one core
/// 26.3, 18.0, 19.3, by two 33.8, 26.5, 26.6.
inline constexpr int prefetch_distance = 2048;

/// How many additions of a group's 2 products of 8 bits each stay within 16 bits.
template <class Format>
inline constexpr int groups_per_fold = [] {
  int groups = scaled_by_half<Format> ? 4 : 8;
  while (groups > 1 && groups * 2 * Format::largest * 127 > 32767) {
    groups /= 2;
  }
  return groups;
}();

/// How a product takes its activations: types and steps that depend on their width.
template <class V, class Dot, class Format>
struct Int8Products {
  using Block = ActivationBlock;
  using Sum = typename Dot::Sum;
  using Codes = typename V::Int;
  static constexpr bool is_signed = Format::codes == CodeKind::signed_integer;
  static constexpr int offset = Format::offset + (is_signed ? Dot::signed_offset : 0);
  /// Halves of a block are added up one after the other; else as one integer sum.
  static constexpr bool by_half = Format::sub_scales == SubScales::per_half_e4m3;
  /// Their integer sums are scaled and added up as floats, which is exact too.
  static constexpr bool keeps_halves = Dot::keeps_halves && scaled_by_half<Format> && !by_half;
  static_assert(!keeps_halves || block_inputs / 2 * 127 * 128 *
                                         (Format::offset > Format::largest - Format::offset
                                              ? Format::offset
                                              : Format::largest - Format::offset) <=
                                     1 << 24);

  static Codes prepare(typename V::Int codes) { return codes; }

  template <int group>
  [[gnu::always_inline]] static void add(Sum& sum, const BlockView<V, Format>& view,
                                         const Codes& codes, const Block& x) {
    std::int32_t values;
    __builtin_memcpy(&values, x.values + 4 * group, sizeof values);
    if constexpr (is_signed) {
      static_assert(!scaled_by_half<Format>);
      sum.add_signed(codes, V::set_int(values));
    } else {
      sum.add(codes, V::set_int(values));
      if constexpr (keeps_halves) {
        if constexpr (group == 3) {
          sum.end_half();
        }
      } else if constexpr ((group + 1) % groups_per_fold<Format> == 0) {
        if constexpr (scaled_by_half<Format> && !by_half) {
          sum.fold_scaled(view.half_scale(group / 4));
        } else {
          sum.fold();
        }
      }
    }
  }
};

template <class V, class Dot, class Format>
struct Int15Products {
  using Block = WideActivationBlock;
  using Sum = typename Dot::WideSum;
  struct Codes {
    typename V::Int even;
    typename V::Int odd;
  };
  static constexpr int offset = Format::offset;
  static constexpr bool by_half = scaled_by_half<Format>;
  static constexpr bool keeps_halves = false;

  static Codes prepare(typename V::Int codes) {
    if constexpr (Format::codes == CodeKind::unsigned_integer) {
      return {V::and_int(codes, V::set_int(0x00FF00FF)), V::odd_words(codes)};
    } else {
      return {V::even_words(codes), V::odd_words(codes)};
    }
  }

  template <int group>
  [[gnu::always_inline]] static void add(Sum& sum, const BlockView<V, Format>&, const Codes& codes,
                                         const Block& x) {
    std::int32_t values[2];
    __builtin_memcpy(values, x.values + 4 * group, sizeof values);
    sum.add(codes.even, V::set_int(values[0]));
    sum.add(codes.odd, V::set_int(values[1]));
  }
};

/// The sum of a block whose halves were kept apart, scaled.
template <class V, class Products, class Format>
[[gnu::always_inline]] inline typename V::Float join_halves(const typename Products::Sum& sum,
                                                            const BlockView<V, Format>& view,
                                                            const typename Products::Block& x) {
  auto first = sum.first_half();
  auto last = sum.total();
  if constexpr (Products::offset != 0) {
    first = V::sub_int(first, V::set_int(Products::offset * x.half_sums[0]));
    last = V::sub_int(last, V::set_int(Products::offset * x.half_sums[1]));
  }
  const auto scaled = V::mul(V::to_float(view.half_scale(0)), V::to_float(first));
  return V::fma(V::to_float(view.half_scale(1)), V::to_float(last), scaled);
}

/// `result` plus the product of half a block, or of a whole one, given the sum of codes times
/// values.
template <class V, class Products, class Format>
[[gnu::always_inline]] inline typename V::Float add_product(typename V::Float result,
                                                            const typename Products::Sum& products,
                                                            const BlockView<V, Format>& view,
                                                            const typename Products::Block& x,
                                                            int half) {
  constexpr int offset = Products::offset;
  if constexpr (Products::keeps_halves) {
    return V::fma(V::mul(view.scale(), V::set(x.scale)),
                  join_halves<V, Products>(products, view, x), result);
  }
  auto sum = products.total();
  auto scale = view.scale();
  if constexpr (Products::by_half) {
    sum = V::sub_int(sum, V::set_int(offset * x.half_sums[half]));
    scale = view.scale_of_half(half);
  } else if constexpr (scaled_by_half<Format> && offset != 0) {
    const auto first = V::mul_int(view.half_scale(0), V::set_int(offset * x.half_sums[0]));
    const auto last = V::mul_int(view.half_scale(1), V::set_int(offset * x.half_sums[1]));
    sum = V::sub_int(sum, V::add_int(first, last));
  } else if constexpr (offset != 0) {
    sum = V::sub_int(sum, V::set_int(offset * x.sum));
  }
  return V::fma(V::mul(scale, V::set(x.scale)), V::to_float(sum), result);
}

/// `result` plus a block's minimum times its activations.
template <class V, class Format, class Block>
[[gnu::always_inline]] inline typename V::Float add_minimum(typename V::Float result,
                                                            const BlockView<V, Format>& view,
                                                            const Block& x) {
  if constexpr (Format::sub_scales == SubScales::per_half_minimum) {
    const auto first = V::mul_int(view.half_minimum(0), V::set_int(x.half_sums[0]));
    const auto last = V::mul_int(view.half_minimum(1), V::set_int(x.half_sums[1]));
    return V::fma(V::mul(view.minimum(), V::set(x.scale)), V::to_float(V::add_int(first, last)),
                  result);
  } else {
    return V::fma(view.minimum(), V::set(x.scaled_sum), result);
  }
}

/// Adds the products of one quantization block to `result`.
template <class V, class Dot, class Format, class Products, int segments, int rows>
[[gnu::always_inline]] inline void multiply_block(const HeaderLayout& layout,
                                                  const BlockPlace& place, int lane,
                                                  const typename Products::Block* const (&x)[rows],
                                                  typename V::Float (&result)[segments][rows]) {
  const auto view = [&](int segment) __attribute__((always_inline)) {
    return BlockView<V, Format>{layout, place.header, place.block, lane + segment * V::width};
  };
  constexpr int parts = Products::by_half ? 2 : 1;
  unroll<parts>([&](auto part) __attribute__((always_inline)) {
    constexpr int half = decltype(part)::value;
    typename Products::Sum sum[segments][rows];
    unroll<8 / parts>([&](auto step) __attribute__((always_inline)) {
      constexpr int group = half * 8 / parts + decltype(step)::value;
      for (int segment = 0; segment < segments; ++segment) {
        const auto codes = Products::prepare(view(segment).template codes<group>());
        for (int row = 0; row < rows; ++row) {
          Products::template add<group>(sum[segment][row], view(segment), codes, *x[row]);
        }
      }
    });
    for (int segment = 0; segment < segments; ++segment) {
      for (int row = 0; row < rows; ++row) {
        auto& value = result[segment][row];
        value = add_product<V, Products>(value, sum[segment][row], view(segment), *x[row], half);
        if (half == parts - 1 && view(segment).has_minimum()) {
          value = add_minimum<V>(value, view(segment), *x[row]);
        }
      }
    }
  });
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
/// x 8 124 to 175 G, where AVX2 makes 76 G; in one run of 16 x 8 q4_1 and q4_0 155 G, q8_0 134 G,
/// q5_0 133 G, q6_k 85 G while its halves were scaled by VPMULLD, q4_1 196 instructions for 4096
/// products. One row of weights in the second-level cache: q4_1 45 GB/s, q8_0 74 GB/s, so memory
/// limits it. One Zen 4 core, whose VPDPBUSD alone make 224 G (one a cycle): 128 rows of q4_0 and
/// q4_1 147 to 151 G, q8_0 128 G. The multiply ports limit it: a row's block takes 8 dot products
/// and, in f32, 2 multiplications, with minima 3, on the same ports, which leaves 73% of the peak.
/// One row of 1536 x 1536: q4_1 50 GB/s, q8_0 66 GB/s, twice what it reads from memory.
template <class V, class Dot, class Format, class Products, int rows>
void multiply_tile(const BandShape& shape, const std::uint8_t* band, int lane,
                   const typename Products::Block* x, bool prefetch, float* sums) {
  constexpr int segments = Dot::tile_lanes / V::width;
  const int blocks = shape.columns / block_inputs;
  const HeaderLayout& layout = shape.header;
  const int header_blocks = Format::fixed_header ? Format::header.blocks : layout.blocks;
  const int header_bytes = Format::fixed_header ? Format::header.bytes() : layout.bytes();
  typename V::Float result[segments][rows];
  for (auto& segment : result) {
    for (auto& value : segment) {
      value = V::zero();
    }
  }
  for (int index = 0; index < blocks;) {
    BlockPlace place{band, band + header_bytes};
    const int last = index + header_blocks < blocks ? index + header_blocks : blocks;
    for (int line = 0; prefetch && line < header_bytes; line += 64) {
      __builtin_prefetch(band + prefetch_distance + line);
    }
    for (; index < last; ++index, place.block += block_bytes<Format>) {
      for (int line = 0; prefetch && line < block_bytes<Format>; line += 64) {
        __builtin_prefetch(place.block + prefetch_distance + line);
      }
      const typename Products::Block* activations[rows];
      for (int row = 0; row < rows; ++row) {
        activations[row] = x + static_cast<std::int64_t>(row) * blocks + index;
      }
      multiply_block<V, Dot, Format, Products, segments, rows>(layout, place, lane, activations,
                                                               result);
    }
    band = place.block;
  }
  for (int segment = 0; segment < segments; ++segment) {
    for (int row = 0; row < rows; ++row) {
      V::store(sums + row * band_rows + lane + segment * V::width, result[segment][row]);
    }
  }
}

/// The tile for what rows a larger one leaves. Every number of rows has its own in the formats most
/// used; the others have half as many tiles to compile.
template <class Format, class Products>
constexpr int fewer_rows(int rows) {
  return is_common<Format> && std::is_same_v<typename Products::Block, ActivationBlock> ? rows - 1
                                                                                        : rows / 2;
}

template <class V, class Dot, class Format, class Products, int tile_rows>
void multiply_rows(const BandShape& shape, const std::uint8_t* band, int lane,
                   const typename Products::Block* x, int rows, bool prefetch, float* sums) {
  if constexpr (tile_rows > 0) {
    for (; rows >= tile_rows; rows -= tile_rows) {
      multiply_tile<V, Dot, Format, Products, tile_rows>(shape, band, lane, x, prefetch, sums);
      prefetch = false;
      x += static_cast<std::int64_t>(tile_rows) * (shape.columns / block_inputs);
      sums += tile_rows * band_rows;
    }
    multiply_rows<V, Dot, Format, Products, fewer_rows<Format, Products>(tile_rows)>(
        shape, band, lane, x, rows, prefetch, sums);
  }
}

template <class V, class Dot, class Format, class Products>
void multiply_integers(const BandShape& shape, const std::uint8_t* band,
                       const typename Products::Block* x, int rows, float* sums) {
  const bool prefetch = fetches_weights_ahead();
  for (int lane = 0; lane < band_rows; lane += Dot::tile_lanes) {
    multiply_rows<V, Dot, Format, Products, Dot::tile_rows>(shape, band, lane, x, rows,
                                                            prefetch && lane == 0, sums);
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
void multiply_f32(const BandShape& shape, const std::uint8_t* band, const float* x, int rows,
                  float* sums) {
  const int columns = shape.columns;
  constexpr int panel_inputs = 128;  // 8 KB: stays in the first-level cache for all rows
  constexpr int tile_rows = V::width == 1 ? 1 : 6;
  for (int i = 0; i < rows * band_rows; ++i) {
    sums[i] = 0.0F;
  }
  alignas(64) float panel[panel_inputs * band_rows] = {};
  for (int first = 0; first < columns; first += panel_inputs) {
    const int count = columns - first < panel_inputs ? columns - first : panel_inputs;
    dequantize<V, Format>(shape, band, first, count, panel);
    multiply_rows_f32<V, tile_rows>(panel, count, x + first, columns, rows, sums);
  }
}

template <class V, class Dot, class Format>
constexpr FormatKernels format_kernels() {
  if constexpr (!Format::quantized) {
    return {nullptr, nullptr, multiply_f32<V, Format>, dequantize<V, Format>};
  } else if constexpr (!integer_codes<Format>) {
    return {nullptr, nullptr, multiply_f32<V, Format>, dequantize<V, Format>};
  } else {
    return {multiply_integers<V, Dot, Format, Int8Products<V, Dot, Format>>,
            multiply_integers<V, Dot, Format, Int15Products<V, Dot, Format>>,
            multiply_f32<V, Format>, dequantize<V, Format>};
  }
}

/// The kernels of each format in a list.
template <class V, class Dot, class... Formats>
constexpr std::array<FormatKernels, sizeof...(Formats)> format_kernels(FormatList<Formats...>) {
  return {format_kernels<V, Dot, Formats>()...};
}

/// All kernels of an instruction set; those of most formats are compiled elsewhere.
template <class V, class Dot>
LinearCpu linear_kernels(const SmallKernels& small, const GroupedKernels& grouped) {
  LinearCpu kernels{{},
                    quantize_row<V, ActivationBlock>,
                    quantize_row<V, WideActivationBlock>,
                    convert_row<V>,
                    finish<V>};
  auto* next = kernels.formats.data();
  const auto append = [&](const auto& formats) {
    for (const FormatKernels& format : formats) {
      *next++ = format;
    }
  };
  append(format_kernels<V, Dot>(CommonFormats()));
  append(small);
  append(grouped);
  return kernels;
}

}  // namespace espalier::kernels
