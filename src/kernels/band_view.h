#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/linear_cpu.h"

namespace espalier::kernels {

/// Calls function(integral_constant<int, 0>) ... function(integral_constant<int, count - 1>).
template <int count, class Function>
[[gnu::always_inline]] inline void unroll(Function&& function) {
  [&]<int... indices>(std::integer_sequence<int, indices...>) __attribute__((always_inline)) {
    (function(std::integral_constant<int, indices>()), ...);
  }
  (std::make_integer_sequence<int, count>());
}

/// 8-bit floats, one in each lane, by their bits' place in an f32 and its larger exponent bias.
template <class V>
inline typename V::Float e4m3_value(typename V::Int bits) {
  const auto sign = V::template shift_left<24>(V::and_int(bits, V::set_int(0x80)));
  const auto rest = V::template shift_left<20>(V::and_int(bits, V::set_int(0x7F)));
  return V::mul(V::as_float(V::or_int(sign, rest)), V::set(0x1p120F));
}

template <class V>
inline typename V::Float e5m2_value(typename V::Int bits) {
  const auto sign = V::template shift_left<24>(V::and_int(bits, V::set_int(0x80)));
  const auto rest = V::template shift_left<21>(V::and_int(bits, V::set_int(0x7F)));
  return V::mul(V::as_float(V::or_int(sign, rest)), V::set(0x1p112F));
}

/// 2^(bits - 128). The exponent fields of 2^-127 and 2^-128 are 0: there the mantissa counts.
template <class V>
inline typename V::Float half_of_e8m0(typename V::Int bits) {
  const auto normal = V::template shift_left<23>(V::sub_int(bits, V::set_int(1)));
  const auto subnormal = V::template shift_left<21>(V::add_int(bits, V::set_int(1)));
  return V::as_float(V::max_int(normal, subnormal));
}

/// A quantization block of a band, seen by `V::width` of its rows.
template <class V, class Format>
struct BlockView {
  using Float = typename V::Float;
  using Int = typename V::Int;

  const HeaderLayout& layout;  // looked at unless the format fixes it
  const std::uint8_t* header;
  const std::uint8_t* block;
  int lane;  // first of the rows

  /// The header's scale, or its minimum, which lies behind.
  Float header_number(bool minimum) const {
    const ScaleType type = Format::fixed_header ? Format::header.scale : layout.scale;
    const int size = scale_bytes(type);
    const std::uint8_t* p = header + (lane + (minimum ? band_rows : 0)) * size;
    switch (type) {
      case ScaleType::f16:
        return V::load(reinterpret_cast<const Half*>(p));
      case ScaleType::bf16:
        return V::load(reinterpret_cast<const Bfloat16*>(p));
      case ScaleType::f32:
        return V::load(reinterpret_cast<const float*>(p));
      case ScaleType::e8m0:
        return V::mul(half_of_e8m0<V>(V::load_int(p)), V::set(2.0F));
      case ScaleType::half_e8m0:
        return half_of_e8m0<V>(V::load_int(p));
      default:
        return V::set(1.0F);
    }
  }
  Int signed_sub_scale(int half) const {
    return V::load_int(reinterpret_cast<const std::int8_t*>(block) + half * band_rows + lane);
  }
  Int unsigned_sub_scale(int half) const { return V::load_int(block + half * band_rows + lane); }
  /// The whole number that the sum of half a block is multiplied with.
  Int half_scale(int half) const {
    if constexpr (Format::sub_scales == SubScales::per_half_minimum) {
      return V::and_int(unsigned_sub_scale(half), V::set_int(15));
    } else {
      return signed_sub_scale(half);
    }
  }
  Int half_minimum(int half) const { return V::template shift_right<4>(unsigned_sub_scale(half)); }

  /// The scale of a block's integer sums, without that of its halves.
  Float scale() const {
    auto scale = header_number(false);
    if constexpr (Format::factor != 1.0F) {
      scale = V::mul(scale, V::set(Format::factor));
    }
    if constexpr (Format::sub_scales == SubScales::per_block) {
      scale = V::mul(scale, V::to_float(signed_sub_scale(0)));
    } else if constexpr (Format::sub_scales == SubScales::per_block_minimum) {
      scale = V::mul(scale, V::to_float(unsigned_sub_scale(0)));
    }
    return scale;
  }
  /// The scale of the integer sums of half a block.
  Float scale_of_half(int half) const {
    if constexpr (Format::sub_scales == SubScales::per_half_e4m3) {
      return V::mul(scale(), e4m3_value<V>(unsigned_sub_scale(half)));
    } else {
      return V::mul(scale(), V::to_float(half_scale(half)));
    }
  }
  Float minimum() const {
    if constexpr (Format::sub_scales == SubScales::per_block_minimum) {
      return V::mul(header_number(true), V::to_float(unsigned_sub_scale(1)));
    } else {
      return header_number(true);
    }
  }
  bool has_minimum() const {
    return Format::fixed_header ? Format::header.minimum : layout.minimum;
  }

  /// The 4 codes of a group for each row, as bytes.
  template <int group>
  Int codes() const {
    const auto stored = stored_codes<group>();
    if constexpr (!std::is_null_pointer_v<decltype(Format::table)>) {
      return V::lookup_bytes(Format::table, stored);
    } else {
      return stored;
    }
  }

 private:
  static Int load_group(const std::uint8_t* p) {
    return V::load_int(reinterpret_cast<const std::int32_t*>(p));
  }

  template <int group>
  Int stored_codes() const {
    const std::uint8_t* low = block + sub_scale_bytes<Format> + lane * 4;
    constexpr int bits = Format::low_bits;
    constexpr int shared = 8 / bits;  // groups in one byte
    const Int bytes = load_group(low + group / shared * group_bytes);
    if constexpr (bits == 8) {
      return bytes;
    } else {
      constexpr int mask = bits == 4 ? 0x0F0F0F0F : 0x03030303;
      const Int codes =
          V::and_int(V::template shift_right<bits*(group % shared)>(bytes), V::set_int(mask));
      if constexpr (Format::high_bits == 0) {
        return codes;
      } else {
        constexpr int high_mask = (Format::high_bits == 1 ? 0x01010101 : 0x03030303)
                                  << Format::low_bits;
        return V::or_masked(codes, high_codes<group>(low + low_bytes<Format>),
                            V::set_int(high_mask));
      }
    }
  }

  /// The bits above the low ones, in place, among others.
  template <int group>
  static Int high_codes(const std::uint8_t* planes) {
    constexpr bool one_bit = Format::high_bits == 1;
    const Int plane = load_group(planes + (one_bit ? 0 : group / 4 * group_bytes));
    constexpr int position = one_bit ? group : 2 * (group % 4);
    constexpr int place = Format::low_bits;
    if constexpr (position <= place) {
      return V::template shift_left<place - position>(plane);
    } else {
      return V::template shift_right<position - place>(plane);
    }
  }
};

/// Input 4 group + index of each row, from `BlockView::codes`, before scaling.
template <class V, class Format, int index>
inline typename V::Float code_value(typename V::Int codes) {
  if constexpr (Format::codes == CodeKind::signed_integer) {
    const auto code =
        V::template shift_right_signed<24>(V::template shift_left<24 - 8 * index>(codes));
    return V::to_float(V::sub_int(code, V::set_int(Format::offset)));
  } else {
    const auto code = V::and_int(V::template shift_right<8 * index>(codes), V::set_int(0xFF));
    if constexpr (Format::codes == CodeKind::e4m3) {
      return e4m3_value<V>(code);
    } else if constexpr (Format::codes == CodeKind::e5m2) {
      return e5m2_value<V>(code);
    } else if constexpr (Format::codes == CodeKind::nf4) {
      return V::lookup_floats(nf4_values, code);
    } else {
      return V::to_float(V::sub_int(code, V::set_int(Format::offset)));
    }
  }
}

/// Whether each half of a block has a scale of its own.
template <class Format>
inline constexpr bool scaled_by_half = Format::sub_scales == SubScales::per_half ||
                                       Format::sub_scales == SubScales::per_half_minimum ||
                                       Format::sub_scales == SubScales::per_half_e4m3;

template <class V, class Format>
void dequantize_block(const BlockView<V, Format>& view, float* values) {
  unroll<8>([&](auto group) {
    const auto codes = view.template codes<group>();
    auto scale = view.scale();
    if constexpr (scaled_by_half<Format>) {
      scale = view.scale_of_half(group / 4);
    }
    auto minimum = V::zero();
    if (view.has_minimum()) {
      minimum = view.minimum();
      if constexpr (Format::sub_scales == SubScales::per_half_minimum) {
        minimum = V::mul(minimum, V::to_float(view.half_minimum(group / 4)));
      }
    }
    unroll<4>([&](auto index) {
      const auto code = code_value<V, Format, index>(codes);
      const auto value = view.has_minimum() ? V::fma(scale, code, minimum) : V::mul(scale, code);
      V::store(values + (4 * group + index) * band_rows + view.lane, value);
    });
  });
}

/// Where block `index` of a band and its header lie.
struct BlockPlace {
  const std::uint8_t* header;
  const std::uint8_t* block;
};

template <class V, class Format>
BlockPlace find_block(const HeaderLayout& layout, const std::uint8_t* band, int index) {
  const int blocks = Format::fixed_header ? Format::header.blocks : layout.blocks;
  const int header_bytes = Format::fixed_header ? Format::header.bytes() : layout.bytes();
  const std::int64_t stride = header_bytes + std::int64_t{blocks} * block_bytes<Format>;
  const std::uint8_t* header = band + index / blocks * stride;
  return {header,
          header + header_bytes + static_cast<std::int64_t>(index % blocks) * block_bytes<Format>};
}

template <class V, class Format>
void dequantize(const BandShape& shape, const std::uint8_t* band, int first, int count,
                float* values) {
  if constexpr (Format::quantized) {
    for (int k = first; k < first + count; k += block_inputs) {
      const BlockPlace place = find_block<V, Format>(shape.header, band, k / block_inputs);
      for (int lane = 0; lane < band_rows; lane += V::width) {
        dequantize_block<V, Format>({shape.header, place.header, place.block, lane}, values);
      }
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

}  // namespace espalier::kernels
