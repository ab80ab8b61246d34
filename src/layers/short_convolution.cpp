#include "layers/short_convolution.h"

namespace espalier::layers {

namespace mx = mlx::core;

mx::array ShortConvolution::mix(const mx::array& x, const Norm* norm,
                                const RecurrentCall& call) const {
  const int channels = conv.kernel.weight.shape(1);
  const mx::array projected = in_proj(x, {.norm = norm, .f32_output = true});
  const mx::array gated =
      columns(projected, 0, channels) * columns(projected, 2 * channels, channels);
  const mx::array convolved = conv(gated, call);
  return mx::astype(columns(projected, channels, channels) * convolved, x.dtype());
}

std::size_t ShortConvolution::bytes() const { return in_proj.bytes() + out_proj.bytes(); }

}  // namespace espalier::layers
