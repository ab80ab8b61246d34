#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "layers/activation.h"
#include "layers/linear.h"
#include "layers/mlp.h"
#include "layers/router_rule.h"
#include "mlx/mlx.h"

namespace espalier::layers {

/// One expert's matrices.
struct Expert {
  std::vector<kernels::PackedMatrix> input;  // {gate, up}, or up alone
  kernels::PackedMatrix down;
  std::optional<mlx::core::array> input_bias;  // f32, gate's and up's behind one another
  std::optional<mlx::core::array> down_bias;   // f32

  /// Bytes of the packed matrices.
  std::size_t bytes() const;
};

/// Where experts come from: memory, or a file from which they are read when chosen. `expert` is
/// called from the thread that evaluates.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;
  virtual int count() const = 0;
  virtual Expert expert(int index) const = 0;
  /// Bytes of the packed matrices of all experts that are kept in memory.
  virtual std::size_t bytes() const = 0;
};

/// All experts packed in memory.
class ResidentExperts : public ExpertSource {
 public:
  explicit ResidentExperts(std::vector<Expert> experts) : experts_(std::move(experts)) {}
  int count() const override { return static_cast<int>(experts_.size()); }
  Expert expert(int index) const override { return experts_.at(index); }
  std::size_t bytes() const override;

 private:
  std::vector<Expert> experts_;
};

/// A part that every token goes through, beside its experts.
struct SharedExpert {
  Mlp mlp;
  std::optional<Linear> gate = {};  // one output: the part is multiplied by its sigmoid
};

/// The way to experts whose vectors have another size than the stream's, and back.
struct ExpertLatent {
  Linear input;
  Linear output;
};

/// A mixture of experts. The rows of each chosen expert are gathered and multiplied together; a
/// token's results are added in the order of its experts' indices, so its bits depend on it alone.
struct Experts {
  Linear router;  // outputs: the experts' logits
  RouterRule rule;
  std::optional<mlx::core::array> correction_bias;  // f32 [experts], for choosing alone
  std::shared_ptr<const ExpertSource> experts;
  Activation activation;
  std::optional<ActivationFormat> activations;
  bool weights_scale_input = false;
  std::optional<SharedExpert> shared = {};
  std::optional<mlx::core::array> scales = {};  // f32 [experts], on the experts' weights
  std::optional<ExpertLatent> latent = {};

  /// x [T, D], normalized, to the mixture's result [T, D] in x's dtype.
  mlx::core::array operator()(const mlx::core::array& x) const { return (*this)(x, x); }
  /// The same where the router reads `routed` [T, D] instead.
  mlx::core::array operator()(const mlx::core::array& x, const mlx::core::array& routed) const;
  std::size_t bytes() const;
};

}  // namespace espalier::layers
