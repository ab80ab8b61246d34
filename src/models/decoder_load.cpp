#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "models/decoder.h"
#include "models/module_builder.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;

/// Builds the mixer of whatever kind a layer has.
struct MixerLoader {
  ModuleBuilder& builder;
  const std::string& prefix;

  Mixer operator()(const std::monostate& none) const { return none; }
  Mixer operator()(const AttentionDescriptor& part) const {
    return load_attention(builder, part, prefix);
  }
  Mixer operator()(const LatentAttentionDescriptor&) const {
    throw std::logic_error("[load_decoder] latent attention has no module");
  }
};

/// The same for feed-forward parts.
struct FeedForwardLoader {
  ModuleBuilder& builder;
  const std::string& prefix;

  FeedForward operator()(const std::monostate& none) const { return none; }
  FeedForward operator()(const MlpDescriptor& part) const {
    const TensorNames& names = builder.names();
    return load_mlp(builder, part, prefix, names.mlp_input, names.mlp_down);
  }
  FeedForward operator()(const ExpertsDescriptor& part) const {
    return load_experts(builder, part, prefix);
  }
};

DecoderLayer load_layer(ModuleBuilder& builder, const LayerDescriptor& part,
                        const std::string& prefix) {
  const TensorNames& names = builder.names();
  const auto norm = [&](const std::optional<NormDescriptor>& norm, const std::string& name) {
    return builder.stream_norm(norm, prefix + name);
  };
  return {.mixer_norm = norm(part.attention_norm, names.attention_norm),
          .mixer = std::visit(MixerLoader{builder, prefix}, part.mixer),
          .mixer_join = {.norm = norm(part.attention_post_norm, names.attention_post_norm),
                         .scale = part.residual_scale},
          .mlp_norm = norm(part.mlp_norm, names.mlp_norm),
          .feed_forward = std::visit(FeedForwardLoader{builder, prefix}, part.feed_forward),
          .mlp_join = {.norm = norm(part.mlp_post_norm, names.mlp_post_norm),
                       .scale = part.residual_scale},
          .parallel = part.parallel};
}

}  // namespace

DecoderModules load_decoder(const Descriptor& descriptor, layers::WeightReader& weights,
                            layers::ActivationFormat activations) {
  ModuleBuilder builder(descriptor, weights, activations);
  const TensorNames& names = descriptor.names;
  kernels::PackedMatrix embedding =
      weights.matrix(names.embedding + ".weight", descriptor.vocabulary, descriptor.width);
  std::vector<DecoderLayer> layers;
  for (std::size_t i = 0; i < descriptor.layers.size(); ++i) {
    layers.push_back(
        load_layer(builder, descriptor.layers[i], names.layers + std::to_string(i) + "."));
  }
  layers::Norm final_norm = builder.norm(descriptor.final_norm, names.final_norm, descriptor.width);
  kernels::PackedMatrix head =
      descriptor.tied_head
          ? embedding
          : weights.matrix(names.head + ".weight", descriptor.vocabulary, descriptor.width);
  std::optional<mx::array> head_bias;
  if (descriptor.head_bias) {
    head_bias = builder.bias({names.head}, {descriptor.vocabulary});
  }
  return {.embedding = std::move(embedding),
          .layers = std::move(layers),
          .final_norm = std::move(final_norm),
          .head = layers::Linear({std::move(head)}, std::move(head_bias), activations)};
}

}  // namespace espalier::models
