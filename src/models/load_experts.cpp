#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>

#include "models/module_builder.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;

/// Reads the experts' matrices in whichever way the checkpoint holds them.
class ExpertReader {
 public:
  ExpertReader(ModuleBuilder& builder, const ExpertsDescriptor& part, std::string prefix)
      : part_(part),
        names_(builder.names().experts),
        weights_(builder.weights()),
        prefix_(std::move(prefix)),
        width_(part.latent ? part.latent->size : builder.descriptor().width) {
    if (part_.bias) {
      for (const std::string& name : names_.input) {
        input_bias_.push_back(
            biases(builder.weights(), name, fused() ? 2 * part_.hidden : part_.hidden));
      }
      down_bias_ = biases(builder.weights(), names_.down, width_);
    }
  }

  int count() const { return part_.router.rule.experts; }

  /// Checks that the tensors are there and count as read in `weights`.
  void check(layers::WeightReader& weights) const {
    for (int i = 0; i < count(); ++i) {
      for_each_matrix(i, [&](const std::string& name, const layers::MatrixPart& part) {
        weights.check_part(name, part);
      });
    }
  }

  layers::Expert expert(int index) {
    std::vector<kernels::PackedMatrix> matrices;
    for_each_matrix(index, [&](const std::string& name, const layers::MatrixPart& part) {
      matrices.push_back(weights_.matrix_part(name, part));
    });
    kernels::PackedMatrix down = std::move(matrices.back());
    matrices.pop_back();
    layers::Expert expert{
        .input = std::move(matrices), .down = std::move(down), .input_bias = {}, .down_bias = {}};
    if (part_.bias) {
      add_biases(expert, static_cast<std::size_t>(index));
    }
    return expert;
  }

 private:
  bool fused() const { return part_.gated && names_.input.size() == 1; }

  /// Calls `use` with name and part of an expert's input matrices, then of its down matrix.
  template <class Use>
  void for_each_matrix(int index, const Use& use) const {
    if (fused()) {
      for (const std::vector<int>& rows : {gate_rows(), up_rows()}) {
        use(name(names_.input[0], index), matrix(index, rows, 2 * part_.hidden, width_));
      }
    } else {
      for (const std::string& input : names_.input) {
        use(name(input, index), matrix(index, all(part_.hidden), part_.hidden, width_));
      }
    }
    use(name(names_.down, index), down(index));
  }

  /// Where experts lie below one another it is turned, a stack without an axis of its own.
  layers::MatrixPart down(int index) const {
    if (part_.layout != ExpertsDescriptor::Layout::below) {
      return matrix(index, all(width_), width_, part_.hidden);
    }
    return {.rows = all(width_),
            .total_rows = width_,
            .columns = part_.hidden,
            .transposed = true,
            .index = index,
            .count = count(),
            .flat = true};
  }

  static std::vector<int> all(int rows) { return layers::number_range(0, rows); }

  std::vector<int> gate_rows() const {
    const bool alternating = part_.gate_up == ExpertsDescriptor::GateUp::alternating;
    return layers::number_range(0, part_.hidden, alternating ? 2 : 1);
  }

  std::vector<int> up_rows() const {
    const bool alternating = part_.gate_up == ExpertsDescriptor::GateUp::alternating;
    return alternating ? layers::number_range(1, part_.hidden, 2)
                       : layers::number_range(part_.hidden, part_.hidden);
  }

  std::string name(const std::string& matrix, int index) const {
    std::string full = prefix_ + matrix + names_.suffix;
    if (part_.layout == ExpertsDescriptor::Layout::each) {
      full.replace(full.find("{}"), 2, std::to_string(index));
    }
    return full;
  }

  layers::MatrixPart matrix(int index, std::vector<int> rows, int total_rows, int columns) const {
    if (part_.layout == ExpertsDescriptor::Layout::below) {
      return {.rows = layers::number_range(index * total_rows, total_rows),
              .total_rows = count() * total_rows,
              .columns = columns};
    }
    layers::MatrixPart part{.rows = std::move(rows), .total_rows = total_rows, .columns = columns};
    if (part_.layout != ExpertsDescriptor::Layout::each) {
      part.transposed = part_.layout == ExpertsDescriptor::Layout::transposed;
      part.index = index;
      part.count = count();
    }
    return part;
  }

  /// Those of all experts behind one another.
  std::vector<float> biases(layers::WeightReader& weights, const std::string& name,
                            int size) const {
    return weights.values(prefix_ + name + names_.bias_suffix, {part_.router.rule.experts, size});
  }

  void add_biases(layers::Expert& expert, std::size_t index) const {
    const auto hidden = static_cast<std::size_t>(part_.hidden);
    std::vector<float> input;
    if (fused()) {
      for (const std::vector<int>& rows : {gate_rows(), up_rows()}) {
        for (const int row : rows) {
          input.push_back(input_bias_[0][index * 2 * hidden + static_cast<std::size_t>(row)]);
        }
      }
    } else {
      for (const std::vector<float>& all : input_bias_) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(index * hidden);
        input.insert(input.end(), first, first + part_.hidden);
      }
    }
    const auto first = down_bias_.begin() + static_cast<std::ptrdiff_t>(index) * width_;
    expert.input_bias = layers::to_array(input);
    expert.down_bias = layers::to_array({first, first + width_});
  }

  ExpertsDescriptor part_;
  ExpertNames names_;
  layers::WeightReader weights_;  // a copy, so that the file stays open
  std::string prefix_;
  int width_;
  std::vector<std::vector<float>> input_bias_;
  std::vector<float> down_bias_;
};

std::shared_ptr<const layers::ExpertSource> load_source(ModuleBuilder& builder,
                                                        const ExpertsDescriptor& part,
                                                        const std::string& prefix, int layer) {
  auto reader = std::make_shared<ExpertReader>(builder, part, prefix);
  reader->check(builder.weights());
  if (builder.expert_cache() != nullptr) {
    return std::make_shared<layers::MappedExperts>(
        reader->count(), layer, [reader](int index) { return reader->expert(index); },
        builder.expert_cache());
  }
  std::vector<layers::Expert> experts;
  for (int i = 0; i < reader->count(); ++i) {
    experts.push_back(reader->expert(i));
  }
  return std::make_shared<layers::ResidentExperts>(std::move(experts));
}

layers::SharedExpert load_shared(ModuleBuilder& builder, const ExpertsDescriptor& part,
                                 const std::string& prefix) {
  const ExpertNames& names = builder.names().experts;
  layers::SharedExpert shared{
      .mlp = load_mlp(builder, *part.shared, prefix, names.shared_input, names.shared_down)};
  if (part.shared_gate) {
    shared.gate =
        builder.linear(prefix, {names.shared_gate}, {1}, builder.descriptor().width, false);
  }
  return shared;
}

std::optional<layers::ExpertLatent> load_latent(ModuleBuilder& builder,
                                                const ExpertsDescriptor& part,
                                                const std::string& prefix) {
  if (!part.latent) {
    return std::nullopt;
  }
  const ExpertNames& names = builder.names().experts;
  const auto& [size, bias] = *part.latent;
  const int width = builder.descriptor().width;
  return layers::ExpertLatent{
      .input = builder.linear(prefix, {names.latent_input}, {size}, width, bias),
      .output = builder.linear(prefix, {names.latent_output}, {width}, size, bias)};
}

}  // namespace

layers::Experts load_experts(ModuleBuilder& builder, const ExpertsDescriptor& part,
                             const std::string& prefix, int layer) {
  const ExpertNames& names = builder.names().experts;
  const layers::RouterRule& rule = part.router.rule;
  // A choice among experts must not depend on how activations are rounded.
  layers::Linear router =
      builder.linear(prefix, {names.router}, {rule.experts}, builder.descriptor().width,
                     part.router.bias, layers::ActivationFormat::f32);
  std::optional<mx::array> correction;
  if (part.router.correction_bias) {
    correction =
        layers::to_array(builder.weights().flat(prefix + names.correction_bias, rule.experts));
  }
  std::optional<layers::SharedExpert> shared;
  if (part.shared) {
    shared = load_shared(builder, part, prefix);
  }
  std::optional<mx::array> scales;
  if (part.router.expert_scales) {
    scales = layers::to_array(builder.weights().flat(prefix + names.scales, rule.experts));
  }
  return {.router = std::move(router),
          .rule = rule,
          .correction_bias = std::move(correction),
          .experts = load_source(builder, part, prefix, layer),
          .activation = part.activation,
          .activations = builder.activations(),
          .weights_scale_input = part.weights_scale_input,
          .shared = std::move(shared),
          .scales = std::move(scales),
          .latent = load_latent(builder, part, prefix)};
}

layers::ParallelFeedForward load_parallel_feed_forward(ModuleBuilder& builder,
                                                       const ParallelFeedForwardDescriptor& part,
                                                       const std::string& prefix, int layer) {
  const TensorNames& names = builder.names();
  const ParallelFeedForwardNames& own = names.parallel_feed_forward;
  const int width = builder.descriptor().width;
  const auto norm = [&](const std::string& name) {
    return builder.norm(part.norm, prefix + name, width);
  };
  std::vector<float> router_scale = builder.weights().flat(prefix + own.router_scale, width);
  for (float& value : router_scale) {
    value /= std::sqrt(static_cast<float>(width));
  }
  return {.mlp = load_mlp(builder, part.mlp, prefix, names.mlp_input, names.mlp_down),
          .mlp_post_norm = norm(own.mlp_post_norm),
          .experts_norm = norm(own.experts_norm),
          .router_norm = layers::Norm(
              kernels::RmsNorm{.weight = layers::to_array(router_scale), .eps = part.norm.eps}),
          .experts = load_experts(builder, part.experts, prefix, layer),
          .experts_post_norm = norm(own.experts_post_norm)};
}

}  // namespace espalier::models
