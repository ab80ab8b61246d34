#include "kernels/linear_product.h"

#include <stdexcept>
#include <string>

#include "kernels/element_type.h"

namespace espalier::kernels {

namespace mx = mlx::core;

namespace {

Activation to_activation(const std::optional<Gate>& gate) {
  if (!gate) {
    return Activation::none;
  }
  switch (*gate) {
    case Gate::silu:
      return Activation::silu;
    case Gate::gelu_tanh:
      return Activation::gelu_tanh;
    case Gate::gelu_erf:
      return Activation::gelu_erf;
    case Gate::relu:
      return Activation::relu;
  }
  return Activation::none;
}

void check(bool fits, const std::string& message) {
  if (!fits) {
    throw std::invalid_argument("[linear] expected " + message);
  }
}

const char* at(const mx::array& array, std::size_t element) {
  return array.data<char>() + element * array.itemsize();
}

}  // namespace

std::vector<mx::array> ProductCall::inputs(const std::vector<mx::array>& matrices) const {
  std::vector<mx::array> all{x};
  all.reserve(1 + matrices.size() + others.size());
  all.insert(all.end(), matrices.begin(), matrices.end());
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

ProductCall check_product(const mx::array& x, const std::vector<PackedMatrix>& weights,
                          const LinearOptions& options, bool f32_output) {
  check(x.ndim() == 2 && !weights.empty(), "x of two dimensions and at least one matrix");
  element_type(x.dtype());
  int outputs = 0;
  for (const auto& weight : weights) {
    check(weight.columns == x.shape(1), "matrices of as many columns as x");
    outputs += weight.rows;
  }
  if (options.gate) {
    check(weights.size() == 2 && weights[0].rows == weights[1].rows,
          "a gate with two matrices of equal shape");
    outputs /= 2;
  }
  std::vector<mx::array> others;
  if (options.norm) {
    check(options.norm->weight.size() == static_cast<std::size_t>(x.shape(1)) &&
              options.norm->weight.dtype() == mx::float32,
          "a f32 norm weight of K elements");
    others.push_back(options.norm->weight);
  }
  if (options.bias) {
    const int biases = options.gate ? 2 * outputs : outputs;
    check(options.bias->size() == static_cast<std::size_t>(biases) &&
              options.bias->dtype() == mx::float32,
          "a f32 bias of as many elements as the matrices have rows");
    others.push_back(*options.bias);
  }
  if (options.residual) {
    check(options.residual->shape() == mx::Shape{x.shape(0), outputs} &&
              options.residual->dtype() == x.dtype(),
          "a residual of the result's shape and x's dtype");
    others.push_back(*options.residual);
  }
  return {.setting = {.activation = to_activation(options.gate),
                      .gated = options.gate.has_value(),
                      .has_norm = options.norm.has_value(),
                      .norm_eps = options.norm ? options.norm->eps : 0.0F,
                      .has_bias = options.bias.has_value(),
                      .has_residual = options.residual.has_value()},
          .shape = {x.shape(0), outputs},
          .dtype = f32_output ? mx::float32 : x.dtype(),
          .x = x,
          .others = std::move(others)};
}

ProductArrays::ProductArrays(const ProductSetting& setting, const std::vector<mx::array>& inputs,
                             std::size_t first, const mx::array& output)
    : setting_(setting), x_(row_contiguous(inputs[0])), output_(output) {
  if (setting.has_norm) {
    norm_weight_ = row_contiguous(inputs[first++]);
  }
  if (setting.has_bias) {
    bias_ = row_contiguous(inputs[first++]);
  }
  if (setting.has_residual) {
    residual_ = row_contiguous(inputs[first++]);
  }
}

ElementType ProductArrays::input_type() const { return element_type(x_.dtype()); }

ActivationRow ProductArrays::row(int index) const {
  return {.data = at(x_, static_cast<std::size_t>(index) * columns()),
          .type = input_type(),
          .columns = columns(),
          .norm_weight = norm_weight_ ? norm_weight_->data<float>() : nullptr,
          .norm_eps = setting_.norm_eps};
}

OutputTile ProductArrays::tile(int first_row, int rows, int column, int lanes) const {
  const auto offset = static_cast<std::size_t>(first_row) * outputs() + column;
  OutputTile tile{};
  tile.bias = bias_ ? bias_->data<float>() + column : nullptr;
  tile.up_bias = bias_ && setting_.gated ? tile.bias + outputs() : nullptr;
  tile.activation = setting_.activation;
  tile.residual = residual_ ? at(*residual_, offset) : nullptr;
  tile.output = const_cast<char*>(at(output_, offset));
  tile.stride = outputs();
  tile.rows = rows;
  tile.lanes = lanes;
  tile.residual_type = input_type();
  tile.output_type = element_type(output_.dtype());
  return tile;
}

}  // namespace espalier::kernels
