#pragma once

#include <string>
#include <variant>

#include "arrays/tensor_file.h"
#include "kernels/trellis.h"
#include "quantization/mlx_encoders.h"

namespace espalier::conversion {

/// How a tensor is stored: a plain or GGUF block type, or one of MLX's quantized formats, which
/// take a tensor of codes, one of scales and, for affine, one of biases; or trellis codes and their
/// scales.
using Encoding = std::variant<arrays::StorageType, quantization::MlxFormat, kernels::TrellisFormat>;

/// "bf16", "affine 4 bit by 64", "mxfp4", "q4_k", "trellis 3 bit".
std::string to_string(const Encoding& encoding);

/// f32, f16 or bf16.
bool is_dense(const Encoding& encoding);
/// A type of whole numbers or bits, whose tensors are copied.
bool is_integer(arrays::StorageType type);

/// What "bfloat16", "float16" and "float32" mean. Throws `UsageError` for anything else.
arrays::StorageType parse_dtype(const std::string& name);
/// "bfloat16", as `config.json` names the type.
std::string dtype_name(arrays::StorageType type);
/// What "affine", "mxfp4", "mxfp8" and "nvfp4" mean. Throws `UsageError` for anything else.
quantization::MlxMode parse_mode(const std::string& name);
std::string mode_name(quantization::MlxMode mode);

/// "1mad" or "mul1".
std::string code_name(kernels::TrellisCode code);

/// Average bits a weight takes, scales and biases included but for the one f16 scale of a
/// trellis-coded row; `scale_bits` is the size of an affine scale.
double bits_per_weight(const Encoding& encoding, int scale_bits = 16);

}  // namespace espalier::conversion
