#include <numeric>
#include <string>
#include <utility>

#include "models/decoder.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;

/// Builds modules from a descriptor's parts.
class Builder {
 public:
  Builder(const Descriptor& descriptor, layers::WeightReader& weights,
          layers::ActivationFormat activations)
      : descriptor_(descriptor), weights_(weights), activations_(activations) {}

  DecoderModules build() {
    const TensorNames& names = descriptor_.names;
    kernels::PackedMatrix embedding =
        weights_.matrix(names.embedding + ".weight", descriptor_.vocabulary, descriptor_.width);
    std::vector<DecoderLayer> layers;
    for (std::size_t i = 0; i < descriptor_.layers.size(); ++i) {
      layers.push_back(layer(descriptor_.layers[i], names.layers + std::to_string(i) + "."));
    }
    layers::Norm final_norm = norm(descriptor_.final_norm, names.final_norm, descriptor_.width);
    kernels::PackedMatrix head =
        descriptor_.tied_head
            ? embedding
            : weights_.matrix(names.head + ".weight", descriptor_.vocabulary, descriptor_.width);
    std::optional<mx::array> head_bias;
    if (descriptor_.head_bias) {
      head_bias = bias({names.head}, {descriptor_.vocabulary});
    }
    return {.embedding = std::move(embedding),
            .layers = std::move(layers),
            .final_norm = std::move(final_norm),
            .head = layers::Linear({std::move(head)}, std::move(head_bias), activations_)};
  }

 private:
  layers::Norm norm(const NormDescriptor& norm, const std::string& name, int size) {
    std::vector<float> weight(static_cast<std::size_t>(size), 1.0F);
    if (norm.weight) {
      weight = weights_.vector(name + ".weight", size);
      for (float& value : weight) {
        value += norm.weight_offset;
      }
    }
    if (norm.kind == NormDescriptor::Kind::rms) {
      return layers::Norm(kernels::RmsNorm{.weight = layers::to_array(weight), .eps = norm.eps});
    }
    std::optional<mx::array> norm_bias;
    if (norm.bias) {
      norm_bias = bias({name}, {size});
    }
    return layers::Norm(layers::LayerNorm{
        .weight = layers::to_array(weight), .bias = std::move(norm_bias), .eps = norm.eps});
  }

  std::optional<layers::Norm> optional_norm(const std::optional<NormDescriptor>& descriptor,
                                            const std::string& name) {
    if (!descriptor) {
      return std::nullopt;
    }
    return norm(*descriptor, name, descriptor_.width);
  }

  /// The biases of several outputs behind one another.
  mx::array bias(const std::vector<std::string>& names, const std::vector<int>& sizes) {
    std::vector<float> values;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::vector<float> part = weights_.vector(names[i] + ".bias", sizes[i]);
      values.insert(values.end(), part.begin(), part.end());
    }
    return layers::to_array(values);
  }

  /// Matrices with `outputs` rows each, from as many tensors or from one that holds them all.
  layers::Linear linear(const std::string& prefix, const std::vector<std::string>& names,
                        const std::vector<int>& outputs, int inputs, bool with_bias) {
    std::vector<std::string> full_names;
    for (const std::string& name : names) {
      full_names.push_back(prefix + name);
    }
    const bool fused = names.size() == 1 && outputs.size() > 1;
    const int total = std::reduce(outputs.begin(), outputs.end());
    std::vector<kernels::PackedMatrix> matrices;
    int first_row = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (fused) {
        matrices.push_back(weights_.matrix_rows(
            full_names[0] + ".weight",
            {.first_row = first_row, .rows = outputs[i], .total_rows = total}, inputs));
      } else {
        matrices.push_back(weights_.matrix(full_names[i] + ".weight", outputs[i], inputs));
      }
      first_row += outputs[i];
    }
    std::optional<mx::array> biases;
    if (with_bias) {
      biases = bias(full_names, fused ? std::vector<int>{total} : outputs);
    }
    return layers::Linear(std::move(matrices), std::move(biases), activations_);
  }

  layers::Attention attention(const AttentionDescriptor& part, const std::string& prefix) {
    const TensorNames& names = descriptor_.names;
    const int q_size = part.heads * part.head_dim;
    const int kv_size = part.kv_heads * part.head_dim;
    layers::Attention module{.qkv_proj = linear(prefix, names.qkv, {q_size, kv_size, kv_size},
                                                descriptor_.width, part.qkv_bias),
                             .o_proj = linear(prefix, {names.attention_output}, {descriptor_.width},
                                              q_size, part.output_bias),
                             .options = {.heads = part.heads,
                                         .kv_heads = part.kv_heads,
                                         .head_dim = part.head_dim,
                                         .scale = part.scale,
                                         .window = part.window,
                                         .softcap = part.softcap,
                                         .q_norm = {},
                                         .k_norm = {},
                                         .rope = {}},
                             .projection_norms = {}};
    if (part.rope) {
      module.options.rope = kernels::Rope{.dims = part.rope->dims,
                                          .interleaved = part.rope->interleaved,
                                          .inv_freq = layers::to_array(part.rope->inv_freq),
                                          .magnitude = part.rope->magnitude};
    }
    if (part.qk_norm && part.qk_norm->scope == QkNormDescriptor::Scope::head) {
      module.options.q_norm = *norm(part.qk_norm->norm, prefix + names.q_norm, part.head_dim).rms();
      module.options.k_norm = *norm(part.qk_norm->norm, prefix + names.k_norm, part.head_dim).rms();
    } else if (part.qk_norm) {
      module.projection_norms = layers::ProjectionNorms{
          .q_norm = norm(part.qk_norm->norm, prefix + names.q_norm, q_size),
          .k_norm = norm(part.qk_norm->norm, prefix + names.k_norm, kv_size)};
    }
    return module;
  }

  layers::Mlp mlp(const MlpDescriptor& part, const std::string& prefix) {
    const TensorNames& names = descriptor_.names;
    const std::vector<int> inputs(part.gated ? 2 : 1, part.hidden);
    return {
        .input = linear(prefix, names.mlp_input, inputs, descriptor_.width, part.bias),
        .down_proj = linear(prefix, {names.mlp_down}, {descriptor_.width}, part.hidden, part.bias),
        .activation = part.activation};
  }

  DecoderLayer layer(const LayerDescriptor& part, const std::string& prefix) {
    const TensorNames& names = descriptor_.names;
    return {.attention_norm = optional_norm(part.attention_norm, prefix + names.attention_norm),
            .attention = attention(part.attention, prefix),
            .attention_join = {.norm = optional_norm(part.attention_post_norm,
                                                     prefix + names.attention_post_norm),
                               .scale = part.residual_scale},
            .mlp_norm = optional_norm(part.mlp_norm, prefix + names.mlp_norm),
            .mlp = mlp(part.mlp, prefix),
            .mlp_join = {.norm = optional_norm(part.mlp_post_norm, prefix + names.mlp_post_norm),
                         .scale = part.residual_scale},
            .parallel = part.parallel};
  }

  const Descriptor& descriptor_;
  layers::WeightReader& weights_;
  layers::ActivationFormat activations_;
};

}  // namespace

DecoderModules load_decoder(const Descriptor& descriptor, layers::WeightReader& weights,
                            layers::ActivationFormat activations) {
  return Builder(descriptor, weights, activations).build();
}

}  // namespace espalier::models
