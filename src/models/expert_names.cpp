#include "models/expert_names.h"

#include <cstddef>
#include <string>
#include <vector>

namespace espalier::models {
namespace {

/// Where MLX keeps the stacked matrices of `part`: beside the other tensors, or in `experts`.
std::string mlx_stack(const layers::WeightReader& weights, const std::string& prefix,
                      const std::string& part) {
  for (const std::string& place :
       {part + ".switch_mlp.", part + ".experts.", std::string("experts.switch_glu.")}) {
    if (weights.contains(prefix + place + "up_proj.weight")) {
      return place;
    }
  }
  return {};
}

void use_stacks(Descriptor& descriptor, ExpertsDescriptor::GateUp gate_up,
                ExpertsDescriptor::Layout layout = ExpertsDescriptor::Layout::stacked) {
  for (LayerDescriptor& layer : descriptor.layers) {
    if (ExpertsDescriptor* experts = layer.experts(); experts != nullptr) {
      experts->layout = layout;
      experts->gate_up = gate_up;
    }
  }
}

/// Which way round the matrices of both input projections lie; as outputs are where both fit.
ExpertsDescriptor::Layout stack_layout(const arrays::TensorFile& file, const std::string& name,
                                       int width, int outputs) {
  const arrays::TensorView* tensor = file.find(name);
  const bool transposed = width != outputs && tensor != nullptr && tensor->shape.size() == 3 &&
                          tensor->shape[1] == width && tensor->shape[2] == outputs;
  return transposed ? ExpertsDescriptor::Layout::transposed : ExpertsDescriptor::Layout::stacked;
}

}  // namespace

void use_stacked_experts(Descriptor& descriptor, const layers::WeightReader& weights,
                         const arrays::TensorFile& file) {
  ExpertNames& names = descriptor.names.experts;
  const std::string part = names.router.substr(0, names.router.find('.'));
  for (std::size_t i = 0; i < descriptor.layers.size(); ++i) {
    const ExpertsDescriptor* experts = descriptor.layers[i].experts();
    if (experts == nullptr) {
      continue;
    }
    const std::string prefix = descriptor.names.layers + std::to_string(i) + ".";
    if (const std::string stack = mlx_stack(weights, prefix, part); !stack.empty()) {
      names.input = experts->gated ? std::vector{stack + "gate_proj", stack + "up_proj"}
                                   : std::vector{stack + "up_proj"};
      names.down = stack + "down_proj";
      names.suffix = ".weight";
      names.bias_suffix = ".bias";
      use_stacks(descriptor, ExpertsDescriptor::GateUp::halves);
    } else if (experts->layout == ExpertsDescriptor::Layout::each && experts->gated &&
               weights.contains(prefix + part + ".experts.gate_up_proj")) {
      names.input = {part + ".experts.gate_up_proj"};
      names.down = part + ".experts.down_proj";
      names.suffix = "";
      use_stacks(
          descriptor, ExpertsDescriptor::GateUp::halves,
          stack_layout(file, prefix + names.input.front(), descriptor.width, 2 * experts->hidden));
    } else if (experts->layout == ExpertsDescriptor::Layout::transposed &&
               weights.contains(prefix + part + ".experts.gate_up_proj.weight")) {
      // Codes lie along the inputs, unlike gpt-oss's plain numbers.
      names.suffix = ".weight";
      use_stacks(descriptor, experts->gate_up);
    }
    return;
  }
}

}  // namespace espalier::models
