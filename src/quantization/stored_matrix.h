#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arrays/tensor_file.h"
#include "kernels/linear.h"

namespace espalier::quantization {

/// What a checkpoint's configuration says of an MLX module: its bits and group.
struct MlxScheme {
  int bits;
  int group;
  std::string mode;  // "affine", "mxfp4", "mxfp8", "nvfp4", "trellis"
  /// Of the mode "trellis", for which `bits` and `group` say nothing.
  std::optional<kernels::TrellisFormat> trellis = {};
};

/// What a checkpoint's configuration says of its weights, beside what their tensors' names, types
/// and shapes tell.
struct WeightSchemes {
  enum class Method { unspecified, mlx, gptq, awq, fp8, compressed_tensors, bitsandbytes };

  Method method = Method::unspecified;
  std::optional<MlxScheme> mlx = {};
  /// MLX modules by path; empty: not quantized.
  std::map<std::string, std::optional<MlxScheme>, std::less<>> mlx_modules = {};
  /// GPTQ stores zero points less one, but for its second version.
  int zero_point_offset = 1;
  /// Rows and columns that share one FP8 scale.
  std::array<int, 2> scale_block = {128, 128};
  /// What products with trellis-coded weights are.
  kernels::TrellisContract trellis_contract = kernels::TrellisContract::integer;
};

/// A weight matrix of a checkpoint, in whatever scheme, ready to be packed. The tensors must
/// outlive it.
struct StoredMatrix {
  /// Codes and scales of a trellis.
  struct Trellis {
    arrays::TensorView codes;
    arrays::TensorView scales;
    kernels::TrellisFormat format;
    kernels::TrellisContract contract;
  };

  /// Plain, or of a GGUF type; the rest then says nothing.
  std::optional<arrays::TensorView> whole = {};
  /// The same of trellis-coded weights.
  std::optional<Trellis> trellis = {};
  kernels::BandLayout layout = {kernels::BandType::f32};
  kernels::BlockReader read = {};
  kernels::ActivationFormat activations = kernels::ActivationFormat::int8;
  /// Every tensor that it is made of.
  std::vector<arrays::TensorView> tensors = {};
};

/// Finds a tensor by its full name; nothing when there is none.
using TensorLookup = std::function<std::optional<arrays::TensorView>(const std::string&)>;

/// The matrix [rows, columns] stored under `path` ("model.layers.0.mlp.up_proj"), by whichever of a
/// scheme's tensors are there: `path`.weight alone, with scales, packed, … Throws `LoadError`
/// naming the tensor, with `file` in front, when one is missing, misshapen or of a wrong type, or
/// the scheme is one that cannot be read.
StoredMatrix find_matrix(const TensorLookup& lookup, const WeightSchemes& schemes,
                         const std::string& file, const std::string& path, int rows, int columns);

/// Packs the given rows of a matrix; with an `owner` of the tensors' memory in place, unless it is
/// trellis-coded. Throws `LoadError` naming the tensor for rows that lie inside a trellis block
/// with others, or not behind one another in a trellis-coded matrix.
kernels::PackedMatrix pack(const StoredMatrix& matrix, const std::vector<int>& rows, int columns,
                           std::shared_ptr<const void> owner = {});

/// Checks of `pack` that need no weights; returns the bytes of `rows` rows once packed.
std::size_t packed_bytes(const StoredMatrix& matrix, int rows, int columns);

}  // namespace espalier::quantization
