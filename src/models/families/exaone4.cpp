#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {

// EXAONE 4: norms after the parts instead of before, q and k norms; where layers slide, the full
// ones have no positions.
Descriptor read_exaone4(ConfigReader& config) {
  config.set_defaults({{"sliding_window", 4096}});
  Descriptor decoder = dense_decoder(config);
  const NormDescriptor norm = rms_norm(config);
  set_post_norms_only(decoder, norm);
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  const bool slides = config.contains("sliding_window");
  const int pattern = config.integer("sliding_window_pattern", 4);
  const std::vector<bool> sliding = sliding_layers(config, slides ? pattern : 0);
  set_windows(decoder, sliding, config.integer("sliding_window", 0));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qk_norm = QkNormDescriptor{.norm = norm};
    if (slides && layer.attention().window == 0) {
      layer.attention().rope.reset();
    }
  }
  return decoder;
}

}  // namespace espalier::models
