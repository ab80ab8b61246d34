#include "models/module_builder.h"

#include <numeric>
#include <utility>

namespace espalier::models {

namespace mx = mlx::core;

layers::Norm ModuleBuilder::norm(const NormDescriptor& norm, const std::string& name, int size) {
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

std::optional<layers::Norm> ModuleBuilder::stream_norm(const std::optional<NormDescriptor>& norm,
                                                       const std::string& name) {
  if (!norm) {
    return std::nullopt;
  }
  return this->norm(*norm, name, descriptor_.width);
}

mx::array ModuleBuilder::bias(const std::vector<std::string>& names,
                              const std::vector<int>& sizes) {
  std::vector<float> values;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::vector<float> part = weights_.vector(names[i] + ".bias", sizes[i]);
    values.insert(values.end(), part.begin(), part.end());
  }
  return layers::to_array(values);
}

layers::Linear ModuleBuilder::linear(const std::string& prefix,
                                     const std::vector<std::string>& names,
                                     const std::vector<int>& outputs, int inputs, bool with_bias,
                                     std::optional<layers::ActivationFormat> activations) {
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
  return layers::Linear(std::move(matrices), std::move(biases), activations.value_or(activations_));
}

layers::Mlp load_mlp(ModuleBuilder& builder, const MlpDescriptor& part, const std::string& prefix,
                     const std::vector<std::string>& input, const std::string& down) {
  const int width = builder.descriptor().width;
  const std::vector<int> inputs(part.gated ? 2 : 1, part.hidden);
  return {.input = builder.linear(prefix, input, inputs, width, part.bias),
          .down_proj = builder.linear(prefix, {down}, {width}, part.hidden, part.bias),
          .activation = part.activation};
}

}  // namespace espalier::models
