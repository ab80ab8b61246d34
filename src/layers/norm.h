#pragma once

#include <optional>
#include <variant>

#include "kernels/norm.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias for each row.
struct LayerNorm {
  mlx::core::array weight;  // [D], f32
  std::optional<mlx::core::array> bias;
  float eps;
};

/// Normalizes the rows of [T, D]: RMS or layer normalization.
class Norm {
 public:
  explicit Norm(kernels::RmsNorm norm) : norm_(std::move(norm)) {}
  explicit Norm(LayerNorm norm) : norm_(std::move(norm)) {}

  /// The normalized rows, plus `residual` when given, in x's dtype.
  mlx::core::array operator()(const mlx::core::array& x,
                              const std::optional<mlx::core::array>& residual = {}) const;

  /// What a linear kernel can take over; null for layer normalization.
  const kernels::RmsNorm* rms() const { return std::get_if<kernels::RmsNorm>(&norm_); }

 private:
  std::variant<kernels::RmsNorm, LayerNorm> norm_;
};

}  // namespace espalier::layers
