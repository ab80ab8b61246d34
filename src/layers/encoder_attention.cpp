#include "layers/encoder_attention.h"

namespace espalier::layers {

namespace mx = mlx::core;

mx::array EncoderAttention::attend(const mx::array& x, const Norm* norm,
                                   const kernels::AttentionBatch& batch) const {
  return kernels::bidirectional_attention(qkv_proj(x, {.norm = norm}), batch, options);
}

}  // namespace espalier::layers
