#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "arrays/tensor_file.h"
#include "kernels/block_codes.h"
#include "kernels/trellis.h"
#include "mlx/mlx.h"

namespace espalier::kernels {

/// How activations enter a product with quantized weights: 8-bit integers, 15-bit integers with a
/// sign, each with one scale per 32 inputs, or floats. Plain weights, and those whose codes are
/// floats (FP8, NF4), always use f32.
enum class ActivationFormat { int8, int15, f32 };

/// How bands are made of a matrix whose rows stay where they are, a mapped file.
struct BandSource {
  /// Of all bands.
  std::size_t bytes;
  /// Writes a band as it is packed. Called by several threads at once. Null where only the shape of
  /// a matrix is known, which nothing can be multiplied with.
  std::function<void(int band, std::uint8_t* target)> fill = {};
  /// Keeps the memory that `fill` reads.
  std::shared_ptr<const void> owner = {};
};

/// One weight matrix [N, K] packed for the processor at hand: bands of output rows interleaved so
/// that one vector register holds the same input position of every row of a band. `data` owns the
/// packed bytes (uint8, MLX allocator); it is private memory, so the file's pages can be dropped.
/// Or in place: `data` is empty and each thread packs a band just before it multiplies with it,
/// which gives the same bits.
struct PackedMatrix {
  mlx::core::array data;
  BandLayout layout;
  int rows;     // N, output features
  int columns;  // K, input features
  /// What suits the precision of the weights.
  ActivationFormat activations = ActivationFormat::int8;
  /// The matrix, where it is trellis-coded; `data` then are its codes and `layout` says nothing.
  std::optional<TrellisMatrix> trellis = {};
  /// Of a matrix in place.
  std::shared_ptr<const BandSource> source = {};

  /// Bytes of all bands, in memory or made when needed.
  std::size_t bytes() const { return source ? source->bytes : packed_bytes(); }
  /// Bytes of private memory.
  std::size_t packed_bytes() const {
    return data.nbytes() + (trellis ? trellis->scales.nbytes() : 0);
  }
};

/// A trellis-coded matrix as any other. Products take 15-bit activations unless told otherwise.
PackedMatrix pack(TrellisMatrix matrix);

/// Whether `pack` takes tensors of this type: f32 f16 bf16 and all GGUF block types but q8_1.
bool can_pack(arrays::StorageType type);

/// Throws `LoadError` naming the tensor when type or shape are none that `pack` takes.
void check_packable(const arrays::TensorView& weight);

/// Packs a [N, K] tensor, or the given rows of it, in parallel on the compute pool; with an `owner`
/// of the tensor's memory, in place. Throws as `check_packable`.
PackedMatrix pack(const arrays::TensorView& weight, const std::vector<int>& rows = {},
                  std::shared_ptr<const void> owner = {});

/// Packs a quantized matrix [rows, columns], whose columns are a multiple of 32, from what `read`
/// says of each block; with an `owner` of what it reads, in place.
PackedMatrix pack_blocks(const BandLayout& layout, int rows, int columns, const BlockReader& read,
                         std::shared_ptr<const void> owner = {});

/// A matrix of which nothing but the shape is known, and the bytes that it would take.
PackedMatrix shape_alone(int rows, int columns, std::size_t bytes);

/// Bytes of a matrix once packed.
std::size_t bytes_once_packed(const BandLayout& layout, int rows, int columns);

/// What `pack` makes of a type that it takes.
BandLayout packed_layout(arrays::StorageType type);

/// RMS normalization of each row: x * weight / sqrt(mean(x^2) + eps), computed in f32.
struct RmsNorm {
  mlx::core::array weight;  // [K], f32
  float eps;
};

enum class Gate { silu, gelu_tanh, gelu_erf, relu };

/// y = epilogue(norm(x) W^T). With several matrices their outputs are concatenated along the last
/// axis (q, k, v).
struct LinearOptions {
  std::optional<RmsNorm> norm = std::nullopt;
  /// [sum N], f32, added before the epilogue.
  std::optional<mlx::core::array> bias = std::nullopt;
  /// Two matrices {gate, up} of equal shape: y = gate(x Wg) * (x Wu), [T, N].
  std::optional<Gate> gate = std::nullopt;
  /// [T, sum N], dtype of x: added last.
  std::optional<mlx::core::array> residual = std::nullopt;
  /// Absent: each matrix's own.
  std::optional<ActivationFormat> activations = std::nullopt;
};

/// x is [T, K] in f32, bf16 or f16; the result is [T, sum N] in the same dtype, or f32 when
/// `f32_output`. Row-invariant: the bits of an output row depend on its input row alone, never on
/// T, the other rows, the thread count or the instruction set. Products are exact integer sums per
/// 32 inputs (16 where weights have a scale for so few), accumulated in f32 (fused multiply-add) in
/// order.
///
/// Trellis-coded matrices: with integer activations the integer contract of `trellis_linear`; with
/// f32 ones, sums in f32 of exact value times scale. Under the reference contract activations are
/// floats, each result is rounded to x's dtype, as are norm, gate and their product, and rows are
/// not invariant: of up to 4 rows the weights are unrefined value times scale in f32, of more exact
/// value times scale rounded to x's dtype.
mlx::core::array linear(const mlx::core::array& x, const std::vector<PackedMatrix>& weights,
                        const LinearOptions& options = {}, bool f32_output = false);

/// The same at once, on data that is there: for use inside a primitive.
mlx::core::array linear_now(const mlx::core::array& x, const std::vector<PackedMatrix>& weights,
                            const LinearOptions& options = {}, bool f32_output = false);

/// The same value by dequantizing to f32 and plain MLX operations (activations f32): the reference
/// of tests, and what runs where there is no kernel.
mlx::core::array linear_ops(const mlx::core::array& x, const std::vector<PackedMatrix>& weights,
                            const LinearOptions& options = {}, bool f32_output = false);

/// The matrix as f32 [N, K].
mlx::core::array unpack(const PackedMatrix& weight);

/// Row and column of a value that is infinite or not a number, if there is one.
std::optional<std::pair<int, int>> find_non_finite(const PackedMatrix& weight);

/// Rows of the table, which is not trellis-coded, for int32 `tokens` [T], times `scale`: [T, K] in
/// `dtype`. Ids are the caller's to check.
mlx::core::array embedding(const mlx::core::array& tokens, const PackedMatrix& table, float scale,
                           mlx::core::Dtype dtype);

}  // namespace espalier::kernels
