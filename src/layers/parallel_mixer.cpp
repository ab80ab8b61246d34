#include "layers/parallel_mixer.h"

namespace espalier::layers {

namespace mx = mlx::core;

mx::array ParallelMixer::mix(const mx::array& x, const Norm* norm, kernels::KvLayer& kv,
                             const std::shared_ptr<const AttentionBatch>& batch,
                             const RecurrentCall& call) const {
  return mx::concatenate({attention.attend(x, norm, kv, batch), mamba.mix(x, norm, call)}, 1);
}

mx::array ParallelMixer::join(const mx::array& residual, const Join& how,
                              const mx::array& mixed) const {
  const int attended = attention.options.heads * attention.options.head_dim;
  Join attention_join = how;
  attention_join.scale *= attention_scale;
  Join mamba_join = how;
  mamba_join.scale *= mamba_scale;
  mamba_join.residual_scale = 1.0F;
  const mx::array after =
      layers::join(residual, attention_join, attention.o_proj, columns(mixed, 0, attended));
  return layers::join(after, mamba_join, mamba.out_proj,
                      columns(mixed, attended, mixed.shape(1) - attended));
}

}  // namespace espalier::layers
