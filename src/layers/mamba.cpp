#include "layers/mamba.h"

#include "kernels/norm.h"

namespace espalier::layers {

namespace mx = mlx::core;

mx::array Mamba::mix(const mx::array& x, const Norm* norm, const RecurrentCall& call) const {
  const int channels = scan.a.shape(1);
  const int states = scan.a.shape(0);
  const mx::array projected = in_proj(x, {.norm = norm, .f32_output = true});
  const mx::array input = conv1d(columns(projected, 0, channels), call);
  const mx::array gate = columns(projected, channels, channels);
  const mx::array parameters = x_proj(input);
  const int rank = parameters.shape(1) - 2 * states;
  mx::array time_step = columns(parameters, 0, rank);
  mx::array b = columns(parameters, rank, states);
  mx::array c = columns(parameters, rank + states, states);
  if (parameter_norms) {
    time_step = kernels::rms_norm(time_step, parameter_norms->time_step);
    b = kernels::rms_norm(b, parameter_norms->b);
    c = kernels::rms_norm(c, parameter_norms->c);
  }
  const mx::array y =
      kernels::selective_scan({.x = input, .time_step = dt_proj(time_step), .b = b, .c = c},
                              call.state.state, call.batch, scan);
  return mx::astype(y * silu(gate), x.dtype());
}

std::size_t Mamba::bytes() const {
  return in_proj.bytes() + x_proj.bytes() + dt_proj.bytes() + out_proj.bytes();
}

}  // namespace espalier::layers
