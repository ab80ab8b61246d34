#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "quantization/gguf_block_encoders.h"
#include "quantization/gguf_decoders.h"
#include "quantization/iq4_values.h"
#include "quantization/small_floats.h"

// The types whose scales are themselves quantized. For each group a grid of trial scales is walked;
// each trial's codes give the scale that is best for them by weighted least squares, and the trial
// with the smallest weighted squared error wins. Then the block's own scale is set by the largest
// of the groups', the groups' scales are rounded to it, and the codes are taken anew.

namespace espalier::quantization {
namespace {

using namespace arrays;

constexpr int block_size = 256;
/// Groups of smaller values are as good as constant.
constexpr float smallest = 1e-15F;

/// The nearest integer, halves to even, for |x| < 2^22.
int nearest(float x) {
  constexpr float shift = 12582912.0F;
  return static_cast<int>((x + shift) - shift);
}

/// The same within bounds; not-a-number becomes `low`.
int nearest(float x, int low, int high) {
  if (!(x > static_cast<float>(low))) return low;
  return nearest(std::min(x, static_cast<float>(high)));
}

float rms(std::span<const float> values) {
  float sum = 0;
  for (const float value : values) sum += value * value;
  return std::sqrt(sum / static_cast<float>(values.size()));
}

struct FittedRange {
  float scale = 0;
  float minimum = 0;  // subtracted; not negative
};

/// Sums from which the scale and minimum that suit given codes best follow.
struct RangeFit {
  double w = 0, wx = 0, wq = 0, wqq = 0, wqx = 0, wxx = 0;

  void add(double weight, double x, double q) {
    w += weight;
    wx += weight * x;
    wq += weight * q;
    wqq += weight * q * q;
    wqx += weight * q * x;
    wxx += weight * x * x;
  }

  FittedRange solve() const {
    constexpr double rounding = 1e-9;
    const double determinant = w * wqq - wq * wq;
    // All codes are equal: nothing tells scale and minimum apart.
    if (!(determinant > rounding * w * wqq)) return without_minimum();
    const double scale = (w * wqx - wq * wx) / determinant;
    const double offset = (wqq * wx - wq * wqx) / determinant;
    if (offset <= 0) return {static_cast<float>(scale), static_cast<float>(-offset)};
    return without_minimum();
  }

  FittedRange without_minimum() const { return {static_cast<float>(wqq > 0 ? wqx / wqq : 0), 0}; }

  double error(const FittedRange& fit) const {
    const double s = fit.scale;
    const double m = fit.minimum;
    return wxx + s * s * wqq + m * m * w - 2 * s * wqx + 2 * m * wx - 2 * s * m * wq;
  }
};

/// Scale and minimum for codes 0 … `largest`.
FittedRange fit_range(std::span<const float> values, int largest) {
  constexpr int trials = 20;
  constexpr float trial_step = 0.1F;
  const auto [low_value, high_value] = std::ranges::minmax(values);
  const float low = std::min(low_value, 0.0F);
  const float range = high_value - low;
  if (range < smallest) return {0, -low};
  const float mean_weight = rms(values);
  FittedRange best;
  double best_error = std::numeric_limits<double>::infinity();
  for (int trial = -trials / 2; trial <= trials / 2; ++trial) {
    const float inverse =
        (static_cast<float>(largest) + static_cast<float>(trial) * trial_step) / range;
    RangeFit sums;
    for (const float x : values) {
      sums.add(mean_weight + std::abs(x), x, nearest((x - low) * inverse, 0, largest));
    }
    const FittedRange fit = sums.solve();
    const double error = sums.error(fit);
    if (error < best_error && fit.scale > 0) {
      best_error = error;
      best = fit;
    }
  }
  return best;
}

/// The scale for codes from a table by way of `code_of(x / scale)`, larger values counting more.
/// `reach` is what the table takes the extreme value to, with that value's opposite sign.
template <typename CodeOf>
float fit_scale(std::span<const float> values, float reach, int trials, float trial_step,
                CodeOf&& code_of) {
  float extreme = 0;
  for (const float x : values) {
    if (std::abs(x) > std::abs(extreme)) extreme = x;
  }
  if (std::abs(extreme) < smallest) return 0;
  float best_scale = 0;
  double best_gain = -1;
  for (int trial = -trials; trial <= trials; ++trial) {
    const float inverse = -(reach + static_cast<float>(trial) * trial_step) / extreme;
    double wqx = 0;
    double wqq = 0;
    for (const float x : values) {
      const double weight = std::abs(static_cast<double>(x));
      const double q = code_of(x * inverse);
      wqx += weight * q * x;
      wqq += weight * q * q;
    }
    // What the codes explain of the weighted squares.
    if (wqq > 0 && wqx * wqx > best_gain * wqq) {
      best_gain = wqx * wqx / wqq;
      best_scale = static_cast<float>(wqx / wqq);
    }
  }
  return best_scale;
}

/// Stores the 6-bit scale and minimum of group g of 8 as Q4_K and Q5_K do.
void place_scale(int group, int scale, int minimum, std::uint8_t (&packed)[12]) {
  if (group < 4) {
    packed[group] |= static_cast<std::uint8_t>(scale);
    packed[group + 4] |= static_cast<std::uint8_t>(minimum);
  } else {
    packed[group + 4] = static_cast<std::uint8_t>((scale & 0xF) | (minimum & 0xF) << 4);
    packed[group - 4] |= static_cast<std::uint8_t>(scale >> 4 << 6);
    packed[group] |= static_cast<std::uint8_t>(minimum >> 4 << 6);
  }
}

struct RoundedScales {
  int scale = 0;
  int minimum = 0;
};

/// The multiples of the block's scale and minimum, at most 63, near those that suit a group best.
RoundedScales round_scales(std::span<const float> group, const FittedRange& fit,
                           const FittedRange& block, int largest) {
  constexpr int steps = 63;
  const int middle_scale = block.scale > 0 ? nearest(fit.scale / block.scale, 0, steps) : 0;
  const int middle_minimum = block.minimum > 0 ? nearest(fit.minimum / block.minimum, 0, steps) : 0;
  const float mean_weight = rms(group);
  RoundedScales best{middle_scale, middle_minimum};
  float best_error = std::numeric_limits<float>::infinity();
  for (int s = std::max(middle_scale - 1, 0); s <= std::min(middle_scale + 1, steps); ++s) {
    for (int m = std::max(middle_minimum - 1, 0); m <= std::min(middle_minimum + 1, steps); ++m) {
      const float scale = block.scale * static_cast<float>(s);
      const float minimum = block.minimum * static_cast<float>(m);
      const float inverse = scale > 0 ? 1 / scale : 0;
      float error = 0;
      for (const float x : group) {
        const auto code = static_cast<float>(nearest((x + minimum) * inverse, 0, largest));
        const float miss = code * scale - minimum - x;
        error += (mean_weight + std::abs(x)) * miss * miss;
      }
      if (error < best_error) {
        best_error = error;
        best = {s, m};
      }
    }
  }
  return best;
}

/// Fills scales and minimums of a Q4_K or Q5_K block and takes the codes 0 … `largest`.
template <typename Block>
void encode_groups(const float* values, int largest, Block& block,
                   std::uint8_t (&codes)[block_size]) {
  constexpr int groups = 8;
  constexpr int size = block_size / groups;
  constexpr int scale_steps = 63;
  std::array<FittedRange, groups> fits;
  FittedRange most;
  for (int g = 0; g < groups; ++g) {
    fits[g] = fit_range({values + g * size, size}, largest);
    most.scale = std::max(most.scale, fits[g].scale);
    most.minimum = std::max(most.minimum, fits[g].minimum);
  }
  block.scale_bits = encode_f16(most.scale / scale_steps);
  block.minimum_bits = encode_f16(most.minimum / scale_steps);
  const float scale = half_to_float(block.scale_bits);
  const float minimum = half_to_float(block.minimum_bits);
  for (int g = 0; g < groups; ++g) {
    const std::span<const float> group(values + g * size, size);
    const auto [s, m] = round_scales(group, fits[g], {scale, minimum}, largest);
    place_scale(g, s, m, block.scales);
    const float own_scale = scale * static_cast<float>(s);
    const float own_minimum = minimum * static_cast<float>(m);
    for (int i = g * size; i < (g + 1) * size; ++i) {
      const float code = own_scale > 0 ? (values[i] + own_minimum) / own_scale : 0;
      codes[i] = static_cast<std::uint8_t>(nearest(code, 0, largest));
    }
  }
}

/// Value i of group g: its low four bits, two groups to a byte.
void place_low_bits(const std::uint8_t (&codes)[block_size], std::uint8_t (&quants)[128]) {
  for (int i = 0; i < block_size; ++i) {
    const int group = i / 32;
    quants[group / 2 * 32 + i % 32] |=
        static_cast<std::uint8_t>((codes[i] & 0xF) << (group % 2 * 4));
  }
}

/// The code whose table value is nearest.
int nearest_iq4(float x) {
  const auto above = std::ranges::lower_bound(iq4_values, x, {},
                                              [](int value) { return static_cast<float>(value); });
  const auto index = static_cast<int>(above - iq4_values.begin());
  if (index == 0) return 0;
  if (index == 16) return 15;
  const float below = x - static_cast<float>(iq4_values[index - 1]);
  return below <= static_cast<float>(iq4_values[index]) - x ? index - 1 : index;
}

float fit_iq4_scale(std::span<const float> values) {
  constexpr float reach = 127;
  constexpr int trials = 10;
  constexpr float trial_step = 1.5F;
  return fit_scale(values, reach, trials, trial_step,
                   [](float x) { return iq4_values[nearest_iq4(x)]; });
}

/// Takes the codes of 32 values and places value i low and value i + 16 high in byte i.
void place_iq4(const float* values, float scale, std::uint8_t* quants) {
  const float inverse = scale == 0 ? 0.0F : 1 / scale;
  for (int i = 0; i < 16; ++i) {
    quants[i] = static_cast<std::uint8_t>(nearest_iq4(values[i] * inverse) |
                                          nearest_iq4(values[i + 16] * inverse) << 4);
  }
}

}  // namespace

void encode(const float* values, BlockQ4_K& block) {
  std::uint8_t codes[block_size];
  encode_groups(values, 15, block, codes);
  place_low_bits(codes, block.quants);
}

void encode(const float* values, BlockQ5_K& block) {
  std::uint8_t codes[block_size];
  encode_groups(values, 31, block, codes);
  place_low_bits(codes, block.quants);
  for (int i = 0; i < block_size; ++i) {
    block.high_bits[i % 32] |= static_cast<std::uint8_t>(codes[i] >> 4 << (i / 32));
  }
}

void encode(const float* values, BlockQ6_K& block) {
  constexpr int groups = 16;
  constexpr int size = block_size / groups;
  constexpr int middle = 32;
  std::array<float, groups> scales;
  float extreme = 0;
  for (int g = 0; g < groups; ++g) {
    scales[g] = fit_scale({values + g * size, size}, middle, 9, 0.1F,
                          [](float x) { return nearest(x, -middle, middle - 1); });
    if (std::abs(scales[g]) > std::abs(extreme)) extreme = scales[g];
  }
  block.scale_bits = encode_f16(extreme / -128);
  const float scale = half_to_float(block.scale_bits);
  for (int g = 0; g < groups; ++g) {
    block.scales[g] =
        static_cast<std::int8_t>(scale == 0 ? 0 : nearest(scales[g] / scale, -128, 127));
    const float own = scale * static_cast<float>(block.scales[g]);
    for (int i = g * size; i < (g + 1) * size; ++i) {
      const int code = own == 0 ? middle : nearest(values[i] / own, -middle, middle - 1) + middle;
      block.low_bits[i / 128 * 64 + i % 64] |=
          static_cast<std::uint8_t>((code & 0xF) << (i / 64 % 2 * 4));
      block.high_bits[i / 128 * 32 + i % 32] |=
          static_cast<std::uint8_t>(code >> 4 << (i / 32 % 4 * 2));
    }
  }
}

void encode(const float* values, BlockIQ4_NL& block) {
  block.scale_bits = encode_f16(fit_iq4_scale({values, 32}));
  place_iq4(values, half_to_float(block.scale_bits), block.quants);
}

void encode(const float* values, BlockIQ4_XS& block) {
  constexpr int groups = 8;
  constexpr int size = block_size / groups;
  constexpr int scale_middle = 32;
  std::array<float, groups> scales;
  float extreme = 0;
  for (int g = 0; g < groups; ++g) {
    scales[g] = fit_iq4_scale({values + g * size, size});
    if (std::abs(scales[g]) > std::abs(extreme)) extreme = scales[g];
  }
  block.scale_bits = encode_f16(extreme / -scale_middle);
  const float scale = half_to_float(block.scale_bits);
  for (int g = 0; g < groups; ++g) {
    const int own = scale == 0 ? 0 : nearest(scales[g] / scale, -scale_middle, scale_middle - 1);
    const int stored = own + scale_middle;
    block.low_scales[g / 2] |= static_cast<std::uint8_t>((stored & 0xF) << (g % 2 * 4));
    block.high_scales = static_cast<std::uint16_t>(block.high_scales | stored >> 4 << (g * 2));
    place_iq4(values + g * size, scale * static_cast<float>(own), block.quants + g * 16);
  }
}

}  // namespace espalier::quantization
