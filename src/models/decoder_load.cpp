#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/decoder.h"
#include "models/load_recurrent.h"
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
  Mixer operator()(const LatentAttentionDescriptor& part) const {
    return load_latent_attention(builder, part, prefix);
  }
  Mixer operator()(const EncoderAttentionDescriptor& part) const {
    return load_encoder_attention(builder, part, prefix);
  }
  Mixer operator()(const RecurrentDescriptor& part) const {
    return load_recurrent(builder, part, prefix);
  }
  Mixer operator()(const ParallelMixerDescriptor& part) const {
    return layers::ParallelMixer{.attention = load_attention(builder, part.attention, prefix),
                                 .mamba = load_mamba2(builder, part.mamba, prefix),
                                 .attention_scale = part.attention_scale,
                                 .mamba_scale = part.mamba_scale};
  }
};

/// The same for feed-forward parts.
struct FeedForwardLoader {
  ModuleBuilder& builder;
  const std::string& prefix;
  int layer;

  FeedForward operator()(const std::monostate& none) const { return none; }
  FeedForward operator()(const MlpDescriptor& part) const {
    const TensorNames& names = builder.names();
    return load_mlp(builder, part, prefix, names.mlp_input, names.mlp_down);
  }
  FeedForward operator()(const ExpertsDescriptor& part) const {
    return load_experts(builder, part, prefix, layer);
  }
  FeedForward operator()(const ParallelFeedForwardDescriptor& part) const {
    return load_parallel_feed_forward(builder, part, prefix, layer);
  }
};

std::optional<layers::LayerInputGate> load_layer_input(ModuleBuilder& builder,
                                                       const LayerDescriptor& part,
                                                       const std::string& prefix) {
  if (!part.layer_input) {
    return std::nullopt;
  }
  const LayerInputNames& names = builder.names().layer_input;
  const int width = builder.descriptor().width;
  const int size = part.layer_input->size;
  return layers::LayerInputGate{
      .gate = builder.linear(prefix, {names.gate}, {size}, width, false),
      .output = builder.linear(prefix, {names.output}, {width}, size, false),
      .norm = builder.norm(part.layer_input->norm, prefix + names.output_norm, width),
      .activation = layers::element_function(part.layer_input->activation)};
}

std::optional<layers::Laurel> load_laurel(ModuleBuilder& builder, const LayerDescriptor& part,
                                          const std::string& prefix) {
  if (!part.laurel) {
    return std::nullopt;
  }
  const LaurelNames& names = builder.names().laurel;
  const int width = builder.descriptor().width;
  const int rank = part.laurel->rank;
  return layers::Laurel{.input = builder.linear(prefix, {names.input}, {rank}, width, false),
                        .output = builder.linear(prefix, {names.output}, {width}, rank, false),
                        .norm = builder.norm(part.laurel->norm, prefix + names.norm, width)};
}

std::optional<layers::AltUp> load_alt_up(ModuleBuilder& builder, const std::string& prefix) {
  const std::optional<AltUpDescriptor>& part = builder.descriptor().alt_up;
  if (!part) {
    return std::nullopt;
  }
  const AltUpNames& names = builder.names().alt_up;
  const int width = builder.descriptor().width;
  // What mixes streams must not depend on how activations are rounded.
  const auto linear = [&](const std::string& name, int outputs, int inputs) {
    return builder.linear(prefix, {name}, {outputs}, inputs, false, layers::ActivationFormat::f32);
  };
  std::vector<float> norm = builder.weights().vector(prefix + names.norm + ".weight", width);
  for (float& value : norm) {
    value /= static_cast<float>(width);
  }
  layers::AltUp module{
      .router_norm =
          layers::Norm(kernels::RmsNorm{.weight = layers::to_array(norm), .eps = part->norm.eps}),
      .router = linear(names.router, part->streams, width),
      .prediction = linear(names.prediction, part->streams * part->streams, part->streams),
      .correction = linear(names.correction, part->streams, part->streams),
      .streams = part->streams,
      .active = part->active};
  const std::vector<float> scale = builder.weights().flat(prefix + names.output_scale, width);
  if (part->output_scale) {
    module.output_scale = layers::to_array(scale);
  }
  return module;
}

std::optional<layers::StreamSpread> load_streams(ModuleBuilder& builder) {
  const std::optional<AltUpDescriptor>& part = builder.descriptor().alt_up;
  if (!part) {
    return std::nullopt;
  }
  const AltUpNames& names = builder.names().alt_up;
  const int width = builder.descriptor().width;
  layers::StreamSpread module;
  for (int i = 0; i + 1 < part->streams; ++i) {
    const std::string index = std::to_string(i);
    module.spread.push_back(builder.linear(names.spread, {index}, {width}, width, false));
    module.merge.push_back(builder.linear(names.merge, {index}, {width}, width, false));
  }
  return module;
}

DecoderLayer load_layer(ModuleBuilder& builder, const LayerDescriptor& part,
                        const std::string& prefix, int index, int kv_index) {
  const TensorNames& names = builder.names();
  const auto norm = [&](const std::optional<NormDescriptor>& norm, const std::string& name) {
    return builder.stream_norm(norm, prefix + name);
  };
  const NormedResidualDescriptor factors =
      part.normed_residual.value_or(NormedResidualDescriptor{1.0F, 1.0F});
  DecoderLayer layer{
      .mixer_norm = norm(part.attention_norm, names.attention_norm),
      .mixer = std::visit(MixerLoader{builder, prefix}, part.mixer),
      .mixer_join = {.norm = norm(part.attention_post_norm, names.attention_post_norm),
                     .scale = part.residual_scale * part.mixer_scale,
                     .residual_scale = factors.mixer_factor},
      .mlp_norm = norm(part.mlp_norm, names.mlp_norm),
      .feed_forward = std::visit(FeedForwardLoader{builder, prefix, index}, part.feed_forward),
      .mlp_join = {.norm = norm(part.mlp_post_norm, names.mlp_post_norm),
                   .scale = part.residual_scale * part.mlp_scale,
                   .residual_scale = factors.mlp_factor},
      .parallel = part.parallel,
      .kv_index = kv_index,
      .layer_input = load_layer_input(builder, part, prefix),
      .laurel = load_laurel(builder, part, prefix),
      .alt_up = load_alt_up(builder, prefix),
      .output_scale = part.output_scale ? std::optional(layers::to_array(builder.weights().flat(
                                              prefix + names.output_scale, 1)))
                                        : std::nullopt,
      .normed_residual = part.normed_residual.has_value()};
  if (part.norms_take_sums) {
    std::swap(layer.mixer_join.norm, layer.mixer_join.sum_norm);
    std::swap(layer.mlp_join.norm, layer.mlp_join.sum_norm);
  }
  return layer;
}

/// The pool's layer of each decoder layer: its own, or that of the layer whose keys it shares.
std::vector<int> kv_indices(const Descriptor& descriptor) {
  std::vector<int> indices;
  int next = 0;
  for (const LayerDescriptor& layer : descriptor.layers) {
    const auto* attention = std::get_if<AttentionDescriptor>(&layer.mixer);
    if (attention != nullptr && attention->shares_kv_of) {
      indices.push_back(indices.at(static_cast<std::size_t>(*attention->shares_kv_of)));
    } else {
      const bool keeps_kv = attention != nullptr ||
                            std::holds_alternative<LatentAttentionDescriptor>(layer.mixer) ||
                            std::holds_alternative<ParallelMixerDescriptor>(layer.mixer);
      indices.push_back(next);
      next += keeps_kv ? 1 : 0;
    }
  }
  return indices;
}

std::optional<layers::LayerInputs> load_layer_inputs(ModuleBuilder& builder) {
  const Descriptor& descriptor = builder.descriptor();
  const std::optional<LayerInputDescriptor>& input = descriptor.layers.front().layer_input;
  if (!input) {
    return std::nullopt;
  }
  const LayerInputNames& names = builder.names().layer_input;
  const int total = input->size * static_cast<int>(descriptor.layers.size());
  return layers::LayerInputs{
      .embedding = builder.weights().table(
          names.embedding + ".weight",
          input->vocabulary > 0 ? input->vocabulary : descriptor.vocabulary, total),
      .projection = builder.linear({}, {names.projection}, {total}, descriptor.width, false),
      .norm = builder.norm(input->norm, names.projection_norm, input->size),
      .size = input->size,
      .vocabulary = input->vocabulary};
}

}  // namespace

DecoderModules load_decoder(const Descriptor& descriptor, layers::WeightReader& weights,
                            std::optional<layers::ActivationFormat> activations,
                            std::shared_ptr<layers::ExpertCache> expert_cache) {
  ModuleBuilder builder(descriptor, weights, activations, std::move(expert_cache));
  const TensorNames& names = descriptor.names;
  const int width = descriptor.width;
  const int outer = descriptor.embedding_width > 0 ? descriptor.embedding_width : width;
  kernels::PackedMatrix embedding =
      weights.table(names.embedding + ".weight", descriptor.vocabulary, outer);
  std::optional<LearnedPositions> positions;
  if (descriptor.positions) {
    positions =
        LearnedPositions{.table = weights.table(names.positions + ".weight",
                                                descriptor.positions->rows, descriptor.width),
                         .offset = descriptor.positions->offset};
  }
  std::optional<kernels::PackedMatrix> token_types;
  if (descriptor.token_types > 0) {
    token_types =
        weights.table(names.token_types + ".weight", descriptor.token_types, descriptor.width);
  }
  std::vector<DecoderLayer> layers;
  const std::vector<int> kv = kv_indices(descriptor);
  for (std::size_t i = 0; i < descriptor.layers.size(); ++i) {
    layers.push_back(load_layer(builder, descriptor.layers[i],
                                names.layers + std::to_string(i) + ".", static_cast<int>(i),
                                kv[i]));
  }
  layers::Norm final_norm = builder.norm(descriptor.final_norm, names.final_norm, descriptor.width);
  kernels::PackedMatrix head =
      descriptor.tied_head ? embedding
                           : weights.matrix(names.head + ".weight", descriptor.vocabulary, outer);
  std::optional<mx::array> head_bias;
  if (descriptor.head_bias) {
    head_bias = builder.bias({names.head}, {descriptor.vocabulary});
  }
  std::optional<layers::Linear> embedding_output;
  std::optional<layers::Linear> head_input;
  if (descriptor.embedding_width > 0) {
    embedding_output = builder.linear({}, {names.embedding_output}, {width}, outer, false);
    head_input = builder.linear({}, {names.head_input}, {outer}, width, false);
  }
  std::optional<layers::LayerInputs> layer_inputs = load_layer_inputs(builder);
  std::optional<layers::StreamSpread> streams = load_streams(builder);
  return {.embedding = std::move(embedding),
          .positions = std::move(positions),
          .token_types = std::move(token_types),
          .embedding_norm = builder.stream_norm(descriptor.embedding_norm, names.embedding_norm),
          .layer_inputs = std::move(layer_inputs),
          .streams = std::move(streams),
          .layers = std::move(layers),
          .final_norm = std::move(final_norm),
          .head = layers::Linear({std::move(head)}, std::move(head_bias), activations),
          .embedding_output = std::move(embedding_output),
          .head_input = std::move(head_input),
          .packed_bytes = weights.packed_bytes()};
}

}  // namespace espalier::models
