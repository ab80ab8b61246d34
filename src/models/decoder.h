#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "layers/alt_up.h"
#include "layers/attention.h"
#include "layers/encoder_attention.h"
#include "layers/expert_cache.h"
#include "layers/experts.h"
#include "layers/latent_attention.h"
#include "layers/laurel.h"
#include "layers/layer_inputs.h"
#include "layers/mlp.h"
#include "layers/parallel_feed_forward.h"
#include "layers/parallel_mixer.h"
#include "layers/recurrent_mixer.h"
#include "layers/weight_reader.h"
#include "models/model.h"

namespace espalier::models {

/// What mixes tokens in a layer. Each kind has
///   array mix(const array& x, const Norm* norm, ...) const;   // up to its output matrix
/// and that matrix.
using Mixer = std::variant<std::monostate, layers::Attention, layers::LatentAttention,
                           layers::RecurrentMixer, layers::ParallelMixer, layers::EncoderAttention>;

/// The other part of a layer.
using FeedForward =
    std::variant<std::monostate, layers::Mlp, layers::Experts, layers::ParallelFeedForward>;

/// One layer's modules; see `LayerDescriptor`.
struct DecoderLayer {
  std::optional<layers::Norm> mixer_norm;
  Mixer mixer;
  layers::Join mixer_join;
  std::optional<layers::Norm> mlp_norm;
  FeedForward feed_forward;
  layers::Join mlp_join;
  bool parallel;
  int kv_index;  // of the pool's layer that holds the keys and values
  std::optional<layers::LayerInputGate> layer_input = {};
  std::optional<layers::Laurel> laurel = {};
  std::optional<layers::AltUp> alt_up = {};
  std::optional<mlx::core::array> output_scale = {};  // one number, in the stream's type
  bool normed_residual = false;                       // the stream goes on from the norms' results
};

/// A vector for each position, added to the embedding; position p takes row p + offset.
struct LearnedPositions {
  kernels::PackedMatrix table;
  int offset;
};

/// Everything a causal decoder computes with.
struct DecoderModules {
  kernels::PackedMatrix embedding;
  std::optional<LearnedPositions> positions;
  std::optional<kernels::PackedMatrix> token_types;
  std::optional<layers::Norm> embedding_norm;
  std::optional<layers::LayerInputs> layer_inputs;
  std::optional<layers::StreamSpread> streams;  // where there are several
  std::vector<DecoderLayer> layers;
  layers::Norm final_norm;
  layers::Linear head;
  std::optional<layers::Linear> embedding_output = {};  // to the stream's width
  std::optional<layers::Linear> head_input = {};        // from it
  std::size_t packed_bytes = 0;                         // private memory of all matrices
};

/// Reads every tensor that the descriptor names. With `expert_cache`, those of experts are checked
/// and stay in the file until they are chosen. Throws `LoadError`.
DecoderModules load_decoder(const Descriptor& descriptor, layers::WeightReader& weights,
                            std::optional<layers::ActivationFormat> activations,
                            std::shared_ptr<layers::ExpertCache> expert_cache);

/// The one causal decoder: executes any `Descriptor` over ragged batches.
class Decoder : public Model {
 public:
  Decoder(Descriptor descriptor, DecoderModules modules, mlx::core::Dtype dtype);

  const Descriptor& descriptor() const override { return descriptor_; }
  std::vector<state::KvLayerShape> kv_layers() const override;
  std::vector<state::RecurrentLayerShape> recurrent_layers() const override;
  mlx::core::array forward(const Batch& batch, state::KvPool& pool) override;
  /// What the head reads of all rows, [T, width] or [T, embedding_width], unevaluated; extends the
  /// states as `forward` does. `logits_rows` are not looked at.
  mlx::core::array hidden(const Batch& batch, state::KvPool& pool) const;
  std::size_t weight_bytes() const override;
  std::size_t packed_bytes() const override { return modules_.packed_bytes; }

 private:
  mlx::core::array embed(const Batch& batch, const layers::AttentionBatch& rows) const;
  /// The stream behind the last layer of the wanted rows; evaluated when there are none.
  mlx::core::array run(const Batch& batch, state::KvPool& pool,
                       const std::vector<int>& wanted) const;
  mlx::core::array logits(const mlx::core::array& x) const;

  Descriptor descriptor_;
  DecoderModules modules_;
  mlx::core::Dtype dtype_;  // of the residual stream
};

}  // namespace espalier::models
