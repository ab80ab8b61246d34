#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "arrays/tensor_file.h"
#include "mlx/mlx.h"

namespace espalier::kernels {

/// How the state of a trellis becomes a number: the sum of the four bytes of state * multiplier +
/// addend, minus 510, divided by the standard deviation of such a sum.
enum class TrellisCode { one_mad, mul1 };

/// How the rows of a stored matrix S are coded: bits per weight, bits of the state, the value code,
/// and whether S is the weight [outputs, inputs] (axis 1) or its transpose (axis 0). QTIP's bit
/// shift trellis with tail-biting trellis blocks of 256 weights (arXiv 2406.11235).
struct TrellisFormat {
  int bits = 3;         // K: 2, 3 or 4
  int state_bits = 12;  // L: 12 or 16
  TrellisCode code = TrellisCode::one_mad;
  int axis = 1;
  /// Half a bit more on average: trellis blocks of even number in a row have `bits` + 1.
  bool half_bit = false;

  // Kernels of every instruction set call these: inlined always, so that none shares another's
  // code.
  [[gnu::always_inline]] constexpr int block_bits(std::int64_t block) const {
    return bits + (half_bit && block % 2 == 0 ? 1 : 0);
  }
  /// 32-bit words of the first `blocks` trellis blocks of a row.
  [[gnu::always_inline]] constexpr std::int64_t words(std::int64_t blocks) const {
    return 8 * (bits * blocks + (half_bit ? (blocks + 1) / 2 : 0));
  }
  bool operator==(const TrellisFormat&) const = default;
};

/// Weights in one trellis block.
inline constexpr int trellis_block_weights = 256;
/// Inputs that share one scale when activations become integers.
inline constexpr int trellis_activation_block = 256;
/// 1 / the standard deviation of the byte sum, as f32: the factor of the integer contract.
inline constexpr float trellis_reciprocal = std::bit_cast<float>(0x3BDDB447U);
/// The standard deviation itself, as f32.
inline constexpr float trellis_deviation = std::bit_cast<float>(0x4313CCF0U);

/// The hash of a code: state * multiplier + addend, modulo 2^32.
struct TrellisHash {
  std::uint32_t multiplier;
  std::uint32_t addend;
};

constexpr TrellisHash trellis_hash(TrellisCode code) {
  return code == TrellisCode::one_mad ? TrellisHash{34038481U, 76625530U}
                                      : TrellisHash{0x83DCD12DU, 0U};
}

/// Sum of the four bytes of the state's hash, minus 510: -510 .. 510.
constexpr int trellis_byte_sum(TrellisHash hash, std::uint32_t state) {
  const std::uint32_t x = state * hash.multiplier + hash.addend;
  return static_cast<int>((x & 0xFF) + ((x >> 8) & 0xFF) + ((x >> 16) & 0xFF) + (x >> 24)) - 510;
}

/// 32-bit words of one trellis block.
constexpr int trellis_block_words(int bits) { return 8 * bits; }

/// State of weight `position` of a trellis block of `bits` bits a weight: the last position lies in
/// the lowest bits, and the window wraps from the last word to the first.
constexpr std::uint32_t trellis_state(const std::uint32_t* words, int bits, int state_bits,
                                      int position) {
  const int bit = (trellis_block_weights - 1 - position) * bits;
  const int word = bit >> 5;
  const std::uint64_t window =
      words[word] | static_cast<std::uint64_t>(words[(word + 1) % trellis_block_words(bits)]) << 32;
  return static_cast<std::uint32_t>(window >> (bit & 31)) & ((1U << state_bits) - 1);
}

/// The number that each state means: its byte sum over the deviation, correctly rounded.
std::vector<float> trellis_values(const TrellisFormat& format);

/// Which sums a product with trellis weights is: exact integer ones, or those of the format's first
/// implementation, whose weights depend on how many rows are multiplied (see `linear`).
enum class TrellisContract { integer, reference };

/// A trellis-coded weight [N, K] in the order that the kernels read. Immutable.
struct TrellisMatrix {
  mlx::core::array codes;   // uint32 words, see `pack_trellis`
  mlx::core::array scales;  // f32: [N] for axis 1, [K] for axis 0
  TrellisFormat format;
  int rows;     // N, output features
  int columns;  // K, input features
  TrellisContract contract = TrellisContract::integer;
};

/// Takes a coded matrix from a file: `codes` uint32 [rows of S, words], or [words / 48, rows, 48]
/// for two trellis blocks interleaved (axis 0, 3 bits, state of 12 bits, code 1MAD), and `scales`
/// f16 [rows of S]. The words of axis 0 are put in order of trellis blocks, so that a product reads
/// them in sequence. Throws `LoadError` naming the tensor when type, shape or format do not fit.
TrellisMatrix pack_trellis(const arrays::TensorView& codes, const arrays::TensorView& scales,
                           const TrellisFormat& format);

/// Outputs first .. first + count of a matrix, copied. With axis 0 both must be multiples of 256,
/// else `std::invalid_argument`.
TrellisMatrix trellis_rows(const TrellisMatrix& matrix, int first, int count);

/// Integers that activations become in a product with trellis weights: 15 bits and a sign, or int8.
enum class TrellisActivations { int15, int8 };

/// x [T, K] in f32, bf16 or f16 times the transposed weight: f32 [T, N], by the integer contract:
/// activations become integers per 256 inputs, dot products are exact, and their results are added
/// in f32 in the order of the inputs, so the bits of a row depend on that row alone.
mlx::core::array trellis_linear(const mlx::core::array& x, const TrellisMatrix& weight,
                                TrellisActivations activations);

/// The same by expanding the weight and plain MLX operations, activations f32.
mlx::core::array trellis_linear_ops(const mlx::core::array& x, const TrellisMatrix& weight);

/// The weight [N, K]: each exact value times its scale in f32, rounded once to `dtype`.
mlx::core::array expand_trellis(const TrellisMatrix& weight, mlx::core::Dtype dtype);

}  // namespace espalier::kernels
