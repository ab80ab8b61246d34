#include "layers/norm.h"

namespace espalier::layers {

namespace mx = mlx::core;

mx::array Norm::operator()(const mx::array& x, const std::optional<mx::array>& residual) const {
  if (const kernels::RmsNorm* norm = rms()) {
    return kernels::rms_norm(x, *norm, residual);
  }
  const LayerNorm& norm = std::get<LayerNorm>(norm_);
  const mx::array normed =
      mx::astype(mx::fast::layer_norm(mx::astype(x, mx::float32), norm.weight, norm.bias, norm.eps),
                 x.dtype());
  return residual ? *residual + normed : normed;
}

}  // namespace espalier::layers
