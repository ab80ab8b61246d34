#pragma once

#include <memory>

#include "arrays/tensor_file.h"

namespace espalier::quantization {

/// gpt-oss has the weights of its experts as `X_blocks` u8 [..., groups, 16] and `X_scales` u8
/// [..., groups], byte for byte what MLX's mxfp4 is. Returns the file with each such pair as
/// `X.weight` u32 [..., 4 groups] and `X.scales`; the file itself when it has none. Throws
/// `LoadError` naming the tensor when one of a pair is missing or misshapen.
std::shared_ptr<const arrays::TensorFile> name_mxfp4_as_mlx(
    std::shared_ptr<const arrays::TensorFile> file);

}  // namespace espalier::quantization
