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
  ExpertReader(ModuleBuilder& builder, const ExpertsDescriptor& part, const std::string& prefix)
      : part_(part),
        names_(builder.names().experts),
        weights_(builder.weights()),
        prefix_(prefix),
        width_(builder.descriptor().width) {}

  std::vector<layers::Expert> read() {
    if (part_.bias) {
      for (const std::string& name : names_.input) {
        input_bias_.push_back(biases(name, fused() ? 2 * part_.hidden : part_.hidden));
      }
      down_bias_ = biases(names_.down, width_);
    }
    std::vector<layers::Expert> experts;
    for (int i = 0; i < part_.router.rule.experts; ++i) {
      experts.push_back(expert(i));
    }
    return experts;
  }

 private:
  bool fused() const { return part_.gated && names_.input.size() == 1; }

  layers::Expert expert(int index) {
    layers::Expert expert{.input = {},
                          .down = matrix(names_.down, index, all(width_), width_, part_.hidden),
                          .input_bias = {},
                          .down_bias = {}};
    if (fused()) {
      for (const std::vector<int>& rows : {gate_rows(), up_rows()}) {
        expert.input.push_back(matrix(names_.input[0], index, rows, 2 * part_.hidden, width_));
      }
    } else {
      for (const std::string& name : names_.input) {
        expert.input.push_back(matrix(name, index, all(part_.hidden), part_.hidden, width_));
      }
    }
    if (part_.bias) {
      add_biases(expert, static_cast<std::size_t>(index));
    }
    return expert;
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

  kernels::PackedMatrix matrix(const std::string& name, int index, std::vector<int> rows,
                               int total_rows, int columns) {
    if (part_.layout == ExpertsDescriptor::Layout::each) {
      std::string full = prefix_ + name + names_.suffix;
      full.replace(full.find("{}"), 2, std::to_string(index));
      return weights_.matrix_part(
          full, {.rows = std::move(rows), .total_rows = total_rows, .columns = columns});
    }
    return weights_.matrix_part(
        prefix_ + name + names_.suffix,
        {.rows = std::move(rows),
         .total_rows = total_rows,
         .columns = columns,
         .transposed = part_.layout == ExpertsDescriptor::Layout::transposed,
         .index = index,
         .count = part_.router.rule.experts});
  }

  /// Those of all experts behind one another.
  std::vector<float> biases(const std::string& name, int size) {
    return weights_.values(prefix_ + name + names_.bias_suffix, {part_.router.rule.experts, size});
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

  const ExpertsDescriptor& part_;
  const ExpertNames& names_;
  layers::WeightReader& weights_;
  const std::string& prefix_;
  int width_;
  std::vector<std::vector<float>> input_bias_;
  std::vector<float> down_bias_;
};

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

}  // namespace

layers::Experts load_experts(ModuleBuilder& builder, const ExpertsDescriptor& part,
                             const std::string& prefix) {
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
  return {.router = std::move(router),
          .rule = rule,
          .correction_bias = std::move(correction),
          .experts =
              std::make_shared<layers::ResidentExperts>(ExpertReader(builder, part, prefix).read()),
          .activation = part.activation,
          .activations = builder.activations(),
          .weights_scale_input = part.weights_scale_input,
          .shared = std::move(shared)};
}

}  // namespace espalier::models
