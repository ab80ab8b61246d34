#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/trellis_cpu.h"

namespace espalier::kernels {

/// The trellis kernels over an instruction set's `Set`:
///   Lanes                      its lanes; a group is 4 * width neighbouring weights of a trellis
///                              block
///   states<K>(operand, block, group, states)
///                              lane l of states[i]: the state of the group's weight 4 l + i
///   byte_sums(hash)            lane l: sum of the four bytes - 510
///   Sum, dot<activations>(sum, hash, x)
///   exact_sums<activations>(sums, centre, exact)
///                              the lanes of each of `outputs_together` sums of 256 weights
///                              together, less `centre`, rounded once
///   integer<activations>(q)    the word that `dot` takes for the integer q
///   pair_dot(sum, y, x)        sum + the products of two pairs of 16-bit numbers
///   transpose(rows)            a width x width matrix of words
///   to_float(a, b)             a + b without overflow, rounded once
///   tile_rows                  rows of activations in registers
///
/// What limits them: integer issue. A weight costs a shift, a mask, a multiplication, an addition
/// and one (int8) or two (int15) steps of the dot product, at any number of bits; for many rows one
/// step of two 16-bit products per weight and row is all that counts.
template <class Set>
class TrellisKernel {
  using Lanes = typename Set::Lanes;
  using Int = typename Lanes::Int;
  using Float = typename Lanes::Float;
  using Sum = typename Set::Sum;
  static constexpr int width = Lanes::width;
  static constexpr int group_weights = 4 * width;
  static constexpr int groups = trellis_block_weights / group_weights;
  static constexpr int outputs_together = Set::outputs_together;
  /// Inputs of an activation block whose centered products fit 32 bits, also when some are added
  /// to the difference of all that centering makes.
  static constexpr int half_inputs = 128;

 public:
  static constexpr TrellisCpu table() {
    return {
        .unit = group_weights, .prepare = prepare, .few_rows = few_rows, .many_rows = many_rows};
  }

 private:
  static void prepare(const TrellisOperand& operand, const float* values,
                      TrellisActivations activations, bool few, const TrellisRows& rows, int row) {
    const float limit = activations == TrellisActivations::int15 ? 32512.0F : 127.0F;
    std::int32_t* words = rows.words + row * rows.row_words;
    for (int block = 0; block < rows.blocks; ++block) {
      const int first = block * trellis_activation_block;
      const int count = std::min(trellis_activation_block, operand.inputs - first);
      alignas(64) std::int32_t integers[trellis_activation_block] = {};
      const float scale = quantize(values + first, count, limit, integers);
      rows.scales[row * rows.blocks + block] = scale;
      for (int half = 0; half < 2; ++half) {
        const std::int32_t* begin = integers + half * half_inputs;
        rows.centres[2 * (row * rows.blocks + block) + half] =
            510 * std::accumulate(begin, begin + half_inputs, 0);
      }
      if (!few) {
        for (int pair = 0; pair < trellis_activation_block / 2; ++pair) {
          words[first / 2 + pair] =
              (integers[2 * pair] & 0xFFFF) |
              static_cast<std::int32_t>(static_cast<std::uint32_t>(integers[2 * pair + 1]) << 16);
        }
        continue;
      }
      for (int i = 0; i < count; ++i) {
        const std::int32_t word =
            activations == TrellisActivations::int15
                ? Set::template integer<TrellisActivations::int15>(integers[i])
                : Set::template integer<TrellisActivations::int8>(integers[i]);
        words[first + (operand.format.axis == 1 ? lane_order(i) : i)] = word;
      }
    }
  }

  /// Where input i of a trellis block lies when vectors hold every fourth weight.
  static int lane_order(int i) {
    const int group = i / group_weights;
    const int within = i % group_weights;
    return group * group_weights + within % 4 * width + within / 4;
  }

  static float quantize(const float* values, int count, float limit, std::int32_t* integers) {
    Float largest = Lanes::zero();
    for (int i = 0; i < count; i += width) {
      largest = Lanes::max(largest, Lanes::abs(Lanes::load(values + i)));
    }
    alignas(64) float lanes[width];
    Lanes::store(lanes, largest);
    const float magnitude = *std::max_element(lanes, lanes + width);
    const float scale = magnitude / limit;
    // Also where the scale is no longer a number above zero.
    if (!(scale > 0.0F)) {
      return 0.0F;
    }
    // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
    const Float shift = Lanes::set(12582912.0F);
    for (int i = 0; i < count; i += width) {
      const Float scaled = Lanes::div(Lanes::load(values + i), Lanes::set(scale));
      const Float clamped = Lanes::max(Lanes::min(scaled, Lanes::set(limit)), Lanes::set(-limit));
      Lanes::store_int(integers + i, Lanes::to_int(Lanes::sub(Lanes::add(clamped, shift), shift)));
    }
    return scale;
  }

  /// Calls `use(i, hash)` for i in 0 .. 3 with the hashes of every fourth weight of a group.
  template <int bits, class Use>
  [[gnu::always_inline]] static void decode(const TrellisOperand& operand,
                                            const std::uint32_t* block, int group, Use&& use) {
    Int states[4];
    Set::template states<bits>(operand, block, group, states);
    use(0, hash(operand, states[0]));
    use(1, hash(operand, states[1]));
    use(2, hash(operand, states[2]));
    use(3, hash(operand, states[3]));
  }

  static Int hash(const TrellisOperand& operand, Int state) {
    return Lanes::add_int(Lanes::mul_int(state, Lanes::set_int(operand.multiplier)),
                          Lanes::set_int(operand.addend));
  }

  // Few rows.

  static void few_rows(const TrellisOperand& operand, const TrellisRows& x,
                       TrellisActivations activations, int rows, int unit, float* sums) {
    if (activations == TrellisActivations::int15) {
      few<TrellisActivations::int15>(operand, x, rows, unit, sums);
    } else {
      few<TrellisActivations::int8>(operand, x, rows, unit, sums);
    }
  }

  /// Calls `function` with the constants `bits` and, where trellis blocks differ, `half_bit`.
  template <class Function>
  static void with_format(const TrellisFormat& format, Function&& function) {
    switch (2 * format.bits + (format.half_bit ? 1 : 0)) {
      case 4:
        return function.template operator()<2, false>();
      case 5:
        return function.template operator()<2, true>();
      case 6:
        return function.template operator()<3, false>();
      case 7:
        return function.template operator()<3, true>();
      default:
        return function.template operator()<4, false>();
    }
  }

  template <TrellisActivations activations>
  static void few(const TrellisOperand& operand, const TrellisRows& x, int rows, int unit,
                  float* sums) {
    switch (rows) {
      case 1:
        return few_of<activations, 1>(operand, x, unit, sums);
      case 2:
        return few_of<activations, 2>(operand, x, unit, sums);
      case 3:
        return few_of<activations, 3>(operand, x, unit, sums);
      default:
        return few_of<activations, 4>(operand, x, unit, sums);
    }
  }

  template <TrellisActivations activations, int rows>
  static void few_of(const TrellisOperand& operand, const TrellisRows& x, int unit, float* sums) {
    if (operand.format.axis == 1) {
      return with_format(operand.format, [&]<int bits, bool half_bit>() {
        few_along_inputs<bits, half_bit, activations, rows>(operand, x, unit, sums);
      });
    }
    with_bits(operand.format.block_bits(unit / groups), [&]<int bits>() {
      few_along_outputs<bits, activations, rows>(operand, x, unit, sums);
    });
  }

  template <class Function>
  static void with_bits(int bits, Function&& function) {
    switch (bits) {
      case 2:
        return function.template operator()<2>();
      case 3:
        return function.template operator()<3>();
      default:
        return function.template operator()<4>();
    }
  }

  template <int bits, bool half_bit, TrellisActivations activations, int rows>
  static void few_along_inputs(const TrellisOperand& operand, const TrellisRows& x, int unit,
                               float* sums) {
    const int first = unit * group_weights;
    const int last = std::min(first + group_weights, operand.outputs);
    for (int output = first; output < last; output += outputs_together) {
      float total[rows][outputs_together] = {};
      const std::uint32_t* words[outputs_together];
      for (int i = 0; i < outputs_together; ++i) {
        // Past the last output any weight will do: nobody reads what becomes of it.
        words[i] = operand.output_block(std::min(output + i, last - 1), 0);
      }
      for (int block = 0; block < x.blocks; ++block) {
        Sum sum[rows][outputs_together] = {};
        constexpr int even_bits = half_bit ? bits + 1 : bits;
        if (block % 2 == 0) {
          add_block<even_bits, activations, rows>(operand, words, x, block, sum);
        } else {
          add_block<bits, activations, rows>(operand, words, x, block, sum);
        }
        for (int row = 0; row < rows; ++row) {
          add_exact<activations>(sum[row], x, row, block, total[row]);
        }
      }
      for (int row = 0; row < rows; ++row) {
        std::copy_n(total[row], outputs_together, sums + row * group_weights + output - first);
      }
    }
  }

  /// Adds the exact sums of an activation block to the running ones of neighbouring outputs.
  template <TrellisActivations activations>
  static void add_exact(const Sum* sum, const TrellisRows& x, int row, int block, float* total) {
    const int at = row * x.blocks + block;
    float exact[outputs_together];
    Set::template exact_sums<activations>(
        sum, std::int64_t{x.centres[2 * at]} + x.centres[2 * at + 1], exact);
    for (int i = 0; i < outputs_together; ++i) {
      const float product = exact[i] * x.scales[at];
      total[i] += product;
    }
  }

  /// Adds the products of a trellis block of neighbouring outputs to the sums of each row and goes
  /// to the blocks' ends. Outputs take turns: a sum waits for its last product.
  template <int bits, TrellisActivations activations, int rows>
  [[gnu::always_inline]] static void add_block(const TrellisOperand& operand,
                                               const std::uint32_t** words, const TrellisRows& x,
                                               int block, Sum (*sum)[outputs_together]) {
#pragma GCC unroll 4
    for (int group = 0; group < groups; ++group) {
      const std::int32_t* q = x.words + block * trellis_activation_block + group * group_weights;
#pragma GCC unroll 4
      for (int output = 0; output < outputs_together; ++output) {
        decode<bits>(operand, words[output], group, [&](int i, Int hash) {
          for (int row = 0; row < rows; ++row) {
            sum[row][output] = Set::template dot<activations>(
                sum[row][output], hash, Lanes::load_int(q + row * x.row_words + i * width));
          }
        });
      }
    }
    for (int output = 0; output < outputs_together; ++output) {
      words[output] += trellis_block_words(bits);
    }
  }

  template <int bits, TrellisActivations activations, int rows>
  static void few_along_outputs(const TrellisOperand& operand, const TrellisRows& x, int unit,
                                float* sums) {
    std::fill(sums, sums + rows * group_weights, 0.0F);
    for (int block = 0; block < x.blocks; ++block) {
      Sum halves[2][rows][4];
      for (int half = 0; half < 2; ++half) {
        add_half<bits, activations, rows>(operand, x, unit, block, half, halves[half]);
      }
      for (int row = 0; row < rows; ++row) {
        add_scaled(halves[0][row], halves[1][row], x.scales[row * x.blocks + block],
                   sums + row * group_weights);
      }
    }
    for (int row = 0; row < rows; ++row) restore_order(sums + row * group_weights);
  }

  /// The centered products of half an activation block.
  template <int bits, TrellisActivations activations, int rows>
  [[gnu::always_inline]] static void add_half(const TrellisOperand& operand, const TrellisRows& x,
                                              int unit, int block, int half, Sum (*result)[4]) {
    Sum sum[rows][4];
    for (int row = 0; row < rows; ++row) {
      const Sum centre = Lanes::set_int(-x.centres[2 * (row * x.blocks + block) + half]);
      std::fill_n(sum[row], 4, centre);
    }
    const int first = block * trellis_activation_block + half * half_inputs;
    const int last = std::min(first + half_inputs, operand.inputs);
    for (int input = first; input < last; ++input) {
      const std::uint32_t* words = operand.input_block(input, unit / groups);
      decode<bits>(operand, words, unit % groups, [&](int i, Int hash) {
        for (int row = 0; row < rows; ++row) {
          sum[row][i] = Set::template dot<activations>(
              sum[row][i], hash, Lanes::set_int(x.words[row * x.row_words + input]));
        }
      });
    }
    for (int row = 0; row < rows; ++row) std::copy_n(sum[row], 4, result[row]);
  }

  /// Adds the sums of the halves of an activation block, times its scale, to the running ones.
  template <class Exact>
  static void add_scaled(const Exact* first, const Exact* second, float scale, float* sums) {
    for (int i = 0; i < 4; ++i) {
      const Float exact = Set::to_float(first[i], second[i]);
      Lanes::store(sums + i * width,
                   Lanes::add(Lanes::load(sums + i * width), Lanes::mul(exact, Lanes::set(scale))));
    }
  }

  // Many rows: a tile of centered byte sums, pairs of inputs side by side as 16-bit numbers:
  // [128 pairs, unit]. Its columns are outputs in order for axis 1, in lane order for axis 0.

  static void many_rows(const TrellisOperand& operand, const TrellisRows& x, int first_row,
                        int rows, int unit, std::int32_t* tile, float* sums) {
    std::fill(sums, sums + static_cast<std::int64_t>(rows) * group_weights, 0.0F);
    for (int block = 0; block < x.blocks; ++block) {
      const bool along_inputs = operand.format.axis == 1;
      with_bits(operand.format.block_bits(along_inputs ? block : unit / groups), [&]<int bits>() {
        if (along_inputs) {
          fill_along_inputs<bits>(operand, unit, block, tile);
        } else {
          fill_along_outputs<bits>(operand, unit, block, tile);
        }
      });
      for (int row = 0; row < rows; row += Set::tile_rows) {
        multiply_rows(x, first_row + row, std::min(Set::tile_rows, rows - row), block, tile,
                      sums + static_cast<std::int64_t>(row) * group_weights);
      }
    }
    if (operand.format.axis == 0) {
      for (int row = 0; row < rows; ++row) {
        restore_order(sums + static_cast<std::int64_t>(row) * group_weights);
      }
    }
  }

  static void restore_order(float* sums) {
    float ordered[group_weights];
    for (int weight = 0; weight < group_weights; ++weight) {
      ordered[weight] = sums[lane_order(weight)];
    }
    std::copy(ordered, ordered + group_weights, sums);
  }

  static Int pair(Int low, Int high) {
    return Lanes::or_int(Lanes::and_int(low, Lanes::set_int(0xFFFF)),
                         Lanes::template shift_left<16>(high));
  }

  template <int bits>
  static void fill_along_inputs(const TrellisOperand& operand, int unit, int block,
                                std::int32_t* tile) {
    for (int vector = 0; vector < 4; ++vector) {
      const int first = unit * group_weights + vector * width;
      for (int group = 0; group < groups; ++group) {
        Int pairs[2][width];
        for (int lane = 0; lane < width; ++lane) {
          const int output = std::min(first + lane, operand.outputs - 1);
          Int sums[4];
          decode<bits>(operand, operand.output_block(output, block), group,
                       [&](int i, Int hash) { sums[i] = Set::byte_sums(hash); });
          pairs[0][lane] = pair(sums[0], sums[1]);
          pairs[1][lane] = pair(sums[2], sums[3]);
        }
        for (int half = 0; half < 2; ++half) {
          Set::transpose(pairs[half]);
          for (int i = 0; i < width; ++i) {
            const int row = group * 2 * width + 2 * i + half;
            Lanes::store_int(tile + row * group_weights + vector * width, pairs[half][i]);
          }
        }
      }
    }
  }

  template <int bits>
  static void fill_along_outputs(const TrellisOperand& operand, int unit, int block,
                                 std::int32_t* tile) {
    const int first = block * trellis_activation_block;
    for (int input = 0; input < trellis_activation_block; input += 2) {
      Int sums[2][4];
      for (int of_pair = 0; of_pair < 2; ++of_pair) {
        // Activations are zero past the last input: any weight will do there.
        const int at = std::min(first + input + of_pair, operand.inputs - 1);
        decode<bits>(operand, operand.input_block(at, unit / groups), unit % groups,
                     [&](int i, Int hash) { sums[of_pair][i] = Set::byte_sums(hash); });
      }
      for (int i = 0; i < 4; ++i) {
        Lanes::store_int(tile + input / 2 * group_weights + i * width,
                         pair(sums[0][i], sums[1][i]));
      }
    }
  }

  static void multiply_rows(const TrellisRows& x, int first_row, int rows, int block,
                            const std::int32_t* tile, float* sums) {
    if (rows == Set::tile_rows) {
      return multiply<Set::tile_rows>(x, first_row, block, tile, sums);
    }
    for (int row = 0; row < rows; ++row) {
      multiply<1>(x, first_row + row, block, tile, sums + row * group_weights);
    }
  }

  template <int rows>
  static void multiply(const TrellisRows& x, int first_row, int block, const std::int32_t* tile,
                       float* sums) {
    Int halves[2][rows][4];
    const std::int32_t* words =
        x.words + first_row * x.row_words + block * trellis_activation_block / 2;
    for (int half = 0; half < 2; ++half) {
      Int sum[rows][4];
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < 4; ++i) {
          sum[row][i] = Lanes::set_int(0);
        }
      }
      for (int at = half * half_inputs / 2; at < (half + 1) * half_inputs / 2; ++at) {
        const std::int32_t* y = tile + at * group_weights;
        for (int row = 0; row < rows; ++row) {
          const Int q = Lanes::set_int(words[row * x.row_words + at]);
          for (int i = 0; i < 4; ++i) {
            sum[row][i] = Set::pair_dot(sum[row][i], Lanes::load_int(y + i * width), q);
          }
        }
      }
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < 4; ++i) {
          halves[half][row][i] = sum[row][i];
        }
      }
    }
    for (int row = 0; row < rows; ++row) {
      add_scaled(halves[0][row], halves[1][row], x.scales[(first_row + row) * x.blocks + block],
                 sums + row * group_weights);
    }
  }
};

}  // namespace espalier::kernels
