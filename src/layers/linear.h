#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "kernels/linear.h"
#include "layers/norm.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// How activations enter a product with quantized weights.
using ActivationFormat = kernels::ActivationFormat;

/// What products with trellis-coded weights are.
using TrellisContract = kernels::TrellisContract;

/// What happens around one product, beside the weights and bias.
struct LinearCall {
  const Norm* norm = nullptr;  // applied to x first
  std::optional<kernels::Gate> gate = {};
  std::optional<mlx::core::array> residual = {};  // [T, outputs], added last
  bool f32_output = false;
};

/// One or several weight matrices applied to the same input, their outputs side by side (or gated
/// one by the other). Immutable.
class Linear {
 public:
  /// `bias` is f32 [sum of the matrices' rows]. Without `activations` each matrix has those that
  /// suit its scheme.
  Linear(std::vector<kernels::PackedMatrix> weights, std::optional<mlx::core::array> bias,
         std::optional<ActivationFormat> activations);

  /// x [T, inputs] gives [T, outputs] in x's dtype.
  mlx::core::array operator()(const mlx::core::array& x, const LinearCall& call = {}) const;

  const std::vector<kernels::PackedMatrix>& weights() const { return weights_; }
  const std::optional<mlx::core::array>& bias() const { return bias_; }
  /// Bytes of the packed weights.
  std::size_t bytes() const;

 private:
  std::vector<kernels::PackedMatrix> weights_;
  std::optional<mlx::core::array> bias_;
  std::optional<ActivationFormat> activations_;
};

/// How the result of an attention or feed-forward part joins the residual stream:
/// sum_norm(residual_scale * residual + scale * norm(y)).
struct Join {
  std::optional<Norm> norm = {};
  float scale = 1.0F;
  float residual_scale = 1.0F;
  std::optional<Norm> sum_norm = {};
};

/// `residual` [T, D] joined by `projection` applied to `x`.
mlx::core::array join(const mlx::core::array& residual, const Join& join, const Linear& projection,
                      const mlx::core::array& x);

/// The same for a part `y` [T, D] that is computed already.
mlx::core::array join(const mlx::core::array& residual, const Join& join,
                      const mlx::core::array& y);

}  // namespace espalier::layers
