#include "layers/parallel_feed_forward.h"

namespace espalier::layers {

namespace mx = mlx::core;

mx::array ParallelFeedForward::operator()(const mx::array& x, const Norm* norm) const {
  const mx::array always = mlp_post_norm(mlp.down_proj(mlp.hidden(x, norm)));
  return experts_post_norm(experts(experts_norm(x), router_norm(x)), always);
}

std::size_t ParallelFeedForward::bytes() const {
  return mlp.input.bytes() + mlp.down_proj.bytes() + experts.bytes();
}

}  // namespace espalier::layers
