#include "models/module_builder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace espalier::models {

namespace mx = mlx::core;

namespace {

double softplus(double x) { return std::log1p(std::exp(x)); }

/// xIELU's constants, which a checkpoint holds before their softplus.
kernels::ElementFunction load_xielu(layers::WeightReader& weights, const std::string& prefix) {
  const auto constant = [&](const char* name) {
    return static_cast<double>(weights.flat(prefix + name, 1).front());
  };
  const double beta = constant(".beta");
  return {.kind = kernels::ElementFunction::Kind::xielu,
          .constants = {static_cast<float>(softplus(constant(".alpha_p"))),
                        static_cast<float>(beta + softplus(constant(".alpha_n"))),
                        static_cast<float>(beta), static_cast<float>(constant(".eps"))}};
}

}  // namespace

layers::Norm ModuleBuilder::norm(const NormDescriptor& norm, const std::string& name, int size) {
  std::vector<float> weight(static_cast<std::size_t>(size), 1.0F);
  if (norm.weight) {
    // Falcon-H1's GGUF files lack the suffix on one norm.
    const bool bare = weights_.contains(name) && !weights_.contains(name + ".weight");
    weight = weights_.vector(bare ? name : name + ".weight", size);
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
    matrices.push_back(
        fused ? matrix(full_names[0], layers::number_range(first_row, outputs[i]), total, inputs)
              : matrix(full_names[i], layers::number_range(0, outputs[i]), outputs[i], inputs));
    first_row += outputs[i];
  }
  std::optional<mx::array> biases;
  if (with_bias) {
    biases = bias(full_names, fused ? std::vector<int>{total} : outputs);
  }
  return layers::Linear(std::move(matrices), std::move(biases),
                        activations ? activations : activations_);
}

kernels::PackedMatrix ModuleBuilder::matrix(const std::string& name, const std::vector<int>& rows,
                                            int total_rows, int inputs) {
  const auto count = static_cast<int>(rows.size());
  if (rows.empty()) {  // the reader refuses it by name
    return weights_.matrix(name + ".weight", 0, inputs);
  }
  const bool consecutive = rows.back() - rows.front() + 1 == count;
  if (consecutive && !names().transposed) {
    return weights_.matrix_rows(
        name + ".weight", {.first_row = rows.front(), .rows = count, .total_rows = total_rows},
        inputs);
  }
  return weights_.matrix_part(name + ".weight", {.rows = rows,
                                                 .total_rows = total_rows,
                                                 .columns = inputs,
                                                 .transposed = names().transposed});
}

kernels::Rope ModuleBuilder::rope(const RopeDescriptor& rope) {
  const auto known =
      std::ranges::find(ropes_, rope, &std::pair<RopeDescriptor, kernels::Rope>::first);
  if (known != ropes_.end()) {
    return known->second;
  }
  kernels::Rope made{.dims = rope.dims,
                     .interleaved = rope.interleaved,
                     .inv_freq = layers::to_array(rope.inv_freq),
                     .magnitude = rope.magnitude};
  ropes_.emplace_back(rope, made);
  return made;
}

layers::Linear ModuleBuilder::linear_rows(const std::string& name,
                                          const std::vector<std::vector<int>>& rows, int total_rows,
                                          int inputs, bool with_bias) {
  std::vector<kernels::PackedMatrix> matrices;
  for (const std::vector<int>& part : rows) {
    matrices.push_back(weights_.matrix_part(name + ".weight", {.rows = part,
                                                               .total_rows = total_rows,
                                                               .columns = inputs,
                                                               .transposed = names().transposed}));
  }
  std::optional<mx::array> biases;
  if (with_bias) {
    const std::vector<float> all = weights_.vector(name + ".bias", total_rows);
    std::vector<float> values;
    for (const std::vector<int>& part : rows) {
      for (const int row : part) {
        values.push_back(all[row]);
      }
    }
    biases = layers::to_array(values);
  }
  return layers::Linear(std::move(matrices), std::move(biases), activations_);
}

layers::Linear ModuleBuilder::join_linear(const layers::Linear& first,
                                          const layers::Linear& second) {
  std::vector<kernels::PackedMatrix> matrices = first.weights();
  matrices.insert(matrices.end(), second.weights().begin(), second.weights().end());
  std::optional<mx::array> biases;
  if (first.bias() && second.bias()) {
    biases = mx::concatenate({*first.bias(), *second.bias()});
    biases->eval();
  }
  return layers::Linear(std::move(matrices), std::move(biases), activations_);
}

layers::Mlp load_mlp(ModuleBuilder& builder, const MlpDescriptor& part, const std::string& prefix,
                     const std::vector<std::string>& input, const std::string& down) {
  const int width = builder.descriptor().width;
  const std::vector<int> inputs(part.gated ? 2 : 1, part.hidden);
  layers::Mlp module{.input = builder.linear(prefix, input, inputs, width, part.bias),
                     .down_proj = builder.linear(prefix, {down}, {width}, part.hidden, part.bias),
                     .activation = part.activation,
                     .gate_scale = part.gate_scale};
  if (part.gate_cutoff) {
    module.gate_cutoff = part.gate_cutoff->deviations;
  }
  if (part.hidden_norm) {
    module.hidden_norm =
        builder.norm(*part.hidden_norm, prefix + builder.names().mlp_hidden_norm, part.hidden);
  }
  if (part.activation == layers::Activation::xielu) {
    module.learned = load_xielu(builder.weights(), prefix + builder.names().mlp_activation);
  }
  return module;
}

}  // namespace espalier::models
