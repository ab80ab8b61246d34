#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layers/attention.h"
#include "layers/encoder_attention.h"
#include "layers/expert_cache.h"
#include "layers/experts.h"
#include "layers/latent_attention.h"
#include "layers/mlp.h"
#include "layers/parallel_feed_forward.h"
#include "layers/weight_reader.h"
#include "models/descriptor.h"

namespace espalier::models {

/// Builds modules from a descriptor's parts, reading the tensors that its names say. Every function
/// throws `LoadError`; `prefix` is what stands before a layer's names ("model.layers.3.").
class ModuleBuilder {
 public:
  /// With `expert_cache`, experts stay in the file until they are chosen.
  ModuleBuilder(const Descriptor& descriptor, layers::WeightReader& weights,
                std::optional<layers::ActivationFormat> activations,
                std::shared_ptr<layers::ExpertCache> expert_cache)
      : descriptor_(descriptor),
        weights_(weights),
        activations_(activations),
        expert_cache_(std::move(expert_cache)) {}

  const Descriptor& descriptor() const { return descriptor_; }
  const TensorNames& names() const { return descriptor_.names; }
  layers::WeightReader& weights() { return weights_; }
  std::optional<layers::ActivationFormat> activations() const { return activations_; }
  const std::shared_ptr<layers::ExpertCache>& expert_cache() const { return expert_cache_; }

  /// A norm over `size` elements.
  layers::Norm norm(const NormDescriptor& norm, const std::string& name, int size);
  /// A norm of the residual stream, where there is one.
  std::optional<layers::Norm> stream_norm(const std::optional<NormDescriptor>& norm,
                                          const std::string& name);
  /// The biases of several outputs behind one another.
  mlx::core::array bias(const std::vector<std::string>& names, const std::vector<int>& sizes);
  /// Matrices with `outputs` rows each, from as many tensors or from one that holds them all.
  layers::Linear linear(const std::string& prefix, const std::vector<std::string>& names,
                        const std::vector<int>& outputs, int inputs, bool with_bias,
                        std::optional<layers::ActivationFormat> activations = {});
  /// The rotation as the kernels take it; layers with the same one share it.
  kernels::Rope rope(const RopeDescriptor& rope);
  /// One matrix for each list of a tensor's rows.
  layers::Linear linear_rows(const std::string& name, const std::vector<std::vector<int>>& rows,
                             int total_rows, int inputs, bool with_bias);
  /// The outputs of both side by side.
  layers::Linear join_linear(const layers::Linear& first, const layers::Linear& second);

 private:
  /// A whole matrix, lying as the container has it.
  kernels::PackedMatrix matrix(const std::string& name, const std::vector<int>& rows,
                               int total_rows, int inputs);

  const Descriptor& descriptor_;
  layers::WeightReader& weights_;
  std::optional<layers::ActivationFormat> activations_;
  std::shared_ptr<layers::ExpertCache> expert_cache_;
  std::vector<std::pair<RopeDescriptor, kernels::Rope>> ropes_;
};

// One mixer or feed-forward part each, in files of their own.

layers::Attention load_attention(ModuleBuilder& builder, const AttentionDescriptor& part,
                                 const std::string& prefix);
layers::EncoderAttention load_encoder_attention(ModuleBuilder& builder,
                                                const EncoderAttentionDescriptor& part,
                                                const std::string& prefix);
/// `input` and `down` are the names of the matrices.
layers::Mlp load_mlp(ModuleBuilder& builder, const MlpDescriptor& part, const std::string& prefix,
                     const std::vector<std::string>& input, const std::string& down);

layers::LatentAttention load_latent_attention(ModuleBuilder& builder,
                                              const LatentAttentionDescriptor& part,
                                              const std::string& prefix);
/// `layer` is the index of the layer.
layers::Experts load_experts(ModuleBuilder& builder, const ExpertsDescriptor& part,
                             const std::string& prefix, int layer);
layers::ParallelFeedForward load_parallel_feed_forward(ModuleBuilder& builder,
                                                       const ParallelFeedForwardDescriptor& part,
                                                       const std::string& prefix, int layer);

}  // namespace espalier::models
