#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "layers/attention.h"
#include "layers/linear.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// Multi-head latent attention with its up-projections moved to the queries and the result: a token
/// keeps one latent vector (R elements) and one rotated key part, whatever the number of heads.
struct LatentAttention {
  /// Queries by way of a smaller vector, where the model has one.
  struct QueryDown {
    Linear proj;
    Norm norm;
  };

  std::optional<QueryDown> q_down;
  Linear q_proj;                                // to [nope, rope] of each head
  Linear kv_down;                               // to the latent vector and the key part to rotate
  Norm kv_norm;                                 // of the latent vector
  std::vector<kernels::PackedMatrix> key_up;    // of each head, [R, nope]
  std::vector<kernels::PackedMatrix> value_up;  // of each head, [Dv, R]
  Linear o_proj;
  kernels::AttentionOptions options;  // of the latent attention: D = rope + R, Dv = R

  /// norm(x) [T, width] to the attended values [T, H Dv], before `o_proj`. Writes the rows' latent
  /// vectors into `kv`.
  mlx::core::array attend(const mlx::core::array& x, const Norm* norm, kernels::KvLayer& kv,
                          const std::shared_ptr<const AttentionBatch>& batch) const;
  std::size_t bytes() const;
};

}  // namespace espalier::layers
