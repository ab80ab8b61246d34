#include "models/state_shapes.h"

#include "models/load_recurrent.h"

namespace espalier::models {

std::vector<state::KvLayerShape> kv_layers(const Descriptor& descriptor) {
  std::vector<state::KvLayerShape> shapes;
  for (const LayerDescriptor& layer : descriptor.layers) {
    const auto* attention = std::get_if<AttentionDescriptor>(&layer.mixer);
    if (const auto* both = std::get_if<ParallelMixerDescriptor>(&layer.mixer)) {
      attention = &both->attention;
    }
    if (attention != nullptr && !attention->shares_kv_of) {
      const int values = attention->value_dim > 0 ? attention->value_dim : attention->head_dim;
      shapes.push_back({.kv_heads = attention->kv_heads,
                        .head_dim = attention->head_dim,
                        .value_dim = values,
                        .reach = {.window = attention->window, .chunk = attention->chunk}});
    } else if (const auto* latent = std::get_if<LatentAttentionDescriptor>(&layer.mixer)) {
      shapes.push_back(
          {.kv_heads = 1, .head_dim = latent->rope_dim + latent->kv_rank, .value_dim = 0});
    }
  }
  return shapes;
}

std::vector<state::RecurrentLayerShape> recurrent_layers(const Descriptor& descriptor) {
  std::vector<state::RecurrentLayerShape> shapes;
  for (const LayerDescriptor& layer : descriptor.layers) {
    if (const auto* mixer = std::get_if<RecurrentDescriptor>(&layer.mixer)) {
      shapes.push_back(recurrent_state(*mixer));
    } else if (const auto* both = std::get_if<ParallelMixerDescriptor>(&layer.mixer)) {
      shapes.push_back(recurrent_state(both->mamba));
    }
  }
  return shapes;
}

}  // namespace espalier::models
