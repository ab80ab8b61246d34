#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "kernels/linear.h"
#include "kernels/linear_cpu.h"
#include "kernels/primitive.h"
#include "mlx/mlx.h"

namespace espalier::kernels {

/// What surrounds the products of a call of `linear`. Inputs of its nodes are x, what the matrices
/// are made of, then norm weight, bias and residual where there are such.
struct ProductSetting {
  Activation activation;
  bool gated;
  bool has_norm;
  float norm_eps;
  bool has_bias;
  bool has_residual;
};

/// A call, checked: the result's shape and type, and the inputs but for what matrices are made of.
struct ProductCall {
  ProductSetting setting;
  mlx::core::Shape shape;
  mlx::core::Dtype dtype;
  mlx::core::array x;
  std::vector<mlx::core::array> others;

  /// The inputs of a node.
  std::vector<mlx::core::array> inputs(const std::vector<mlx::core::array>& matrices = {}) const;
};

/// Throws `std::invalid_argument` for what does not fit together.
ProductCall check_product(const mlx::core::array& x, const std::vector<PackedMatrix>& weights,
                          const LinearOptions& options, bool f32_output);

/// The arrays of a node that runs.
class ProductArrays {
 public:
  /// The matrices are made of inputs 1 .. first - 1.
  ProductArrays(const ProductSetting& setting, const std::vector<mlx::core::array>& inputs,
                std::size_t first, const mlx::core::array& output);

  int rows() const { return x_.shape(0); }     // T
  int columns() const { return x_.shape(1); }  // K
  int outputs() const { return output_.shape(1); }
  ElementType input_type() const;
  ActivationRow row(int index) const;
  /// Where `rows` rows of up to 16 outputs from `column` on go; sums are still to be set.
  OutputTile tile(int first_row, int rows, int column, int lanes) const;

 private:
  ProductSetting setting_;
  mlx::core::array x_;
  std::optional<mlx::core::array> norm_weight_;
  std::optional<mlx::core::array> bias_;
  std::optional<mlx::core::array> residual_;
  mlx::core::array output_;
};

/// A call's work on `inputs`, as a node or done at once.
template <class Work>
mlx::core::array make_or_run(Work work, const ProductCall& call,
                             const std::vector<mlx::core::array>& inputs, bool now) {
  return now ? run_now(work, call.shape, call.dtype, inputs)
             : make_node(std::move(work), call.shape, call.dtype, inputs);
}

// `linear` for matrices of which some are trellis-coded, as a node or at once.

/// All of them, with integer activations.
bool is_trellis_product(const std::vector<PackedMatrix>& weights, const LinearOptions& options);
mlx::core::array trellis_product(const ProductCall& call, const std::vector<PackedMatrix>& weights,
                                 const LinearOptions& options, bool now);
/// The same on MLX's default device, where `runs_on_gpu` says so for each matrix. What surrounds
/// the products stays with the CPU's kernels, so their bits do, too.
mlx::core::array trellis_product_on_gpu(const ProductCall& call,
                                        const std::vector<PackedMatrix>& weights,
                                        TrellisActivations activations);
/// Any others: each matrix for itself.
mlx::core::array joined_product(const ProductCall& call, const std::vector<PackedMatrix>& weights,
                                const LinearOptions& options, bool now);

}  // namespace espalier::kernels
