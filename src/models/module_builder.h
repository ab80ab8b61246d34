#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/attention.h"
#include "layers/experts.h"
#include "layers/mlp.h"
#include "layers/weight_reader.h"
#include "models/descriptor.h"

namespace espalier::models {

/// Builds modules from a descriptor's parts, reading the tensors that its names say. Every function
/// throws `LoadError`; `prefix` is what stands before a layer's names ("model.layers.3.").
class ModuleBuilder {
 public:
  ModuleBuilder(const Descriptor& descriptor, layers::WeightReader& weights,
                layers::ActivationFormat activations)
      : descriptor_(descriptor), weights_(weights), activations_(activations) {}

  const Descriptor& descriptor() const { return descriptor_; }
  const TensorNames& names() const { return descriptor_.names; }
  layers::WeightReader& weights() { return weights_; }
  layers::ActivationFormat activations() const { return activations_; }

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

 private:
  const Descriptor& descriptor_;
  layers::WeightReader& weights_;
  layers::ActivationFormat activations_;
};

// One mixer or feed-forward part each, in files of their own.

layers::Attention load_attention(ModuleBuilder& builder, const AttentionDescriptor& part,
                                 const std::string& prefix);
/// `input` and `down` are the names of the matrices.
layers::Mlp load_mlp(ModuleBuilder& builder, const MlpDescriptor& part, const std::string& prefix,
                     const std::vector<std::string>& input, const std::string& down);

layers::Experts load_experts(ModuleBuilder& builder, const ExpertsDescriptor& part,
                             const std::string& prefix);

}  // namespace espalier::models
