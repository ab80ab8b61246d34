#pragma once

#include "kernels/attention.h"

namespace espalier::kernels {

/// Throws `std::invalid_argument` where shapes, types, options and batch disagree, so that neither
/// form of attention reads or writes outside its arrays.
void check_attention(const mlx::core::array& qkv, const KvLayer& layer, const AttentionBatch& batch,
                     const AttentionOptions& options);

}  // namespace espalier::kernels
