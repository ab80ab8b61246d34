#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "layers/attention.h"
#include "layers/experts.h"
#include "layers/mlp.h"
#include "layers/weight_reader.h"
#include "models/model.h"

namespace espalier::models {

/// What mixes tokens in a layer. Each kind has
///   array mix(const array& x, const Norm* norm, ...) const;   // up to its output matrix
/// and that matrix.
using Mixer = std::variant<std::monostate, layers::Attention>;

/// The other part of a layer.
using FeedForward = std::variant<std::monostate, layers::Mlp, layers::Experts>;

/// One layer's modules; see `LayerDescriptor`.
struct DecoderLayer {
  std::optional<layers::Norm> mixer_norm;
  Mixer mixer;
  layers::Join mixer_join;
  std::optional<layers::Norm> mlp_norm;
  FeedForward feed_forward;
  layers::Join mlp_join;
  bool parallel;
};

/// Everything a causal decoder computes with.
struct DecoderModules {
  kernels::PackedMatrix embedding;
  std::vector<DecoderLayer> layers;
  layers::Norm final_norm;
  layers::Linear head;
};

/// Reads every tensor that the descriptor names. Throws `LoadError`.
DecoderModules load_decoder(const Descriptor& descriptor, layers::WeightReader& weights,
                            layers::ActivationFormat activations);

/// The one causal decoder: executes any `Descriptor` over ragged batches.
class Decoder : public Model {
 public:
  Decoder(Descriptor descriptor, DecoderModules modules, mlx::core::Dtype dtype);

  const Descriptor& descriptor() const override { return descriptor_; }
  std::vector<state::KvLayerShape> kv_layers() const override;
  mlx::core::array forward(const Batch& batch, state::KvPool& pool) override;
  std::size_t weight_bytes() const override;

 private:
  mlx::core::array logits(const mlx::core::array& x) const;

  Descriptor descriptor_;
  DecoderModules modules_;
  mlx::core::Dtype dtype_;  // of the residual stream
};

}  // namespace espalier::models
