#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace espalier::quantization {

/// MLX's quantized formats (`mlx::core::quantize`): a row is cut into groups, each with its own
/// scale; codes lie one after the other, lowest bits first, in 32-bit words.
enum class MlxMode : std::uint8_t { affine, mxfp4, mxfp8, nvfp4 };

/// What MLX calls them.
inline constexpr std::array<std::pair<std::string_view, MlxMode>, 4> mlx_modes = {{
    {"affine", MlxMode::affine},
    {"mxfp4", MlxMode::mxfp4},
    {"mxfp8", MlxMode::mxfp8},
    {"nvfp4", MlxMode::nvfp4},
}};

struct MlxFormat {
  MlxMode mode = MlxMode::affine;
  int bits = 4;
  int group = 64;

  bool operator==(const MlxFormat&) const = default;
};

/// The format of a mode other than affine, whose bits and group are fixed.
MlxFormat mlx_float_format(MlxMode mode);

/// Whether MLX has this format: affine of 2, 3, 4, 5, 6 or 8 bits by 32, 64 or 128, or a float
/// mode with its own bits and group.
bool is_mlx_format(const MlxFormat& format);

/// The codes of `values`, which are whole groups: `values.size() * bits / 8` bytes. Bit-equal to
/// MLX 0.32.4 on CPU. Affine: value = code * scale + bias, with the scale and bias of each group in
/// `scales` and `biases` before they are rounded to the tensor's type. The values must be finite.
void encode_affine(const MlxFormat& format, std::span<const float> values,
                   std::span<std::byte> codes, std::span<float> scales, std::span<float> biases);

/// The same for mxfp4, mxfp8 and nvfp4, whose scales are bytes: a power of two (e8m0) in the mx
/// modes, e4m3 in nvfp4.
void encode_float(const MlxFormat& format, std::span<const float> values,
                  std::span<std::byte> codes, std::span<std::byte> scales);

/// The values of whole groups in f32: code * scale + bias, unrounded.
void decode_affine(const MlxFormat& format, std::span<const std::byte> codes,
                   std::span<const float> scales, std::span<const float> biases,
                   std::span<float> values);
void decode_float(const MlxFormat& format, std::span<const std::byte> codes,
                  std::span<const std::byte> scales, std::span<float> values);

}  // namespace espalier::quantization
