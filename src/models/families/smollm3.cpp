#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"

namespace espalier::models {
namespace {

constexpr int smollm3_no_rope_interval = 4;  // each fourth layer has no positions

bool lacks_rope(std::size_t layer, int interval) {
  return (layer + 1) % static_cast<std::size_t>(interval) == 0;
}

}  // namespace

// SmolLM3: Llama with layers that have no positions.
Descriptor read_smollm3(ConfigReader& config) {
  config.set_defaults({{"tie_word_embeddings", true}});
  const bool slides = config.boolean("use_sliding_window", false);
  const int window = config.integer("sliding_window", 0);
  Descriptor decoder = read_llama(config);
  const int interval = config.integer("no_rope_layer_interval", smollm3_no_rope_interval);
  const std::vector<int> with_rope = config.integers("no_rope_layers");
  if (!with_rope.empty() && with_rope.size() != decoder.layers.size()) {
    config.fail("no_rope_layers", "has another number of entries than there are layers");
  }
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    // Despite its name the list holds a 1 for layers that have RoPE.
    if (with_rope.empty() ? interval > 0 && lacks_rope(i, interval) : with_rope[i] == 0) {
      decoder.layers[i].attention().rope.reset();
    }
  }
  std::vector<bool> sliding = sliding_layers(config, 0);
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    const bool listed = config.contains("layer_types");
    sliding[i] = slides && (listed ? sliding[i] : !decoder.layers[i].attention().rope.has_value());
  }
  set_windows(decoder, sliding, window);
  return decoder;
}

Descriptor read_smollm3(const GgufReader& file) {
  Descriptor decoder = read_llama(file);
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    if (lacks_rope(i, smollm3_no_rope_interval)) {
      decoder.layers[i].attention().rope.reset();
    }
  }
  return decoder;
}

}  // namespace espalier::models
