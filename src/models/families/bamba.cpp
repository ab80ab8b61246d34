#include <algorithm>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/recurrent.h"

namespace espalier::models {

// Mamba 2 with attention in a few layers.
Descriptor read_bamba(ConfigReader& config) {
  config.set_defaults({{"partial_rotary_factor", 0.5}});
  Descriptor decoder = attention_and_mamba2_decoder(config);
  Mamba2Descriptor mamba = read_mamba2_part(
      config, config.product("mamba_expand", config.integer("mamba_expand", 2), decoder.width));
  mamba.output_norm =
      Mamba2Descriptor::OutputNorm{.eps = decoder.final_norm.eps, .groups = mamba.groups};
  const std::vector<int> attending = config.integers("attn_layer_indices");
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    if (std::ranges::find(attending, static_cast<int>(i)) == attending.end()) {
      decoder.layers[i].mixer = RecurrentDescriptor(mamba);
    }
  }
  ignore_keys(config, {"num_logits_to_keep", "z_loss_coefficient", "attn_rotary_emb"});
  return decoder;
}

}  // namespace espalier::models
