#pragma once

#include <string>
#include <vector>

#include "models/config_reader.h"
#include "models/descriptor.h"
#include "models/gguf_reader.h"

namespace espalier::models {

/// `num_local_experts`, `num_experts` or `n_routed_experts`, whichever the file has.
int expert_count(const ConfigReader& config);

/// A softmax over all experts, of which `num_experts_per_tok` are chosen; `hidden_key` names the
/// experts' hidden size, `activation_key` their activation.
ExpertsDescriptor softmax_experts(const ConfigReader& config, std::string_view hidden_key,
                                  std::string_view activation_key = "hidden_act");

/// DeepSeek-V3's mixture, which many use: sigmoid scores, a bias that corrects the choice, groups
/// of experts unless not `grouped`, shared experts. Sets `names.experts` too.
ExpertsDescriptor deepseek_experts(const ConfigReader& config, Descriptor& decoder,
                                   bool grouped = true);

/// The mixture of a GGUF file, by the keys `expert_*`; `normalize` holds where the file does not
/// say whether weights are divided by their sum. Sets `names.experts` too.
ExpertsDescriptor read_experts(const GgufReader& file, Descriptor& decoder, bool normalize);

/// Puts the mixture into the layers marked in `sparse` (one entry a layer).
void set_experts(Descriptor& decoder, const ExpertsDescriptor& experts,
                 const std::vector<bool>& sparse);
/// The same for every layer from `first` on.
void set_experts(Descriptor& decoder, const ExpertsDescriptor& experts, int first = 0);

/// "dense" or "sparse" for each layer in `mlp_layer_types`, or sparse from `first_k_dense_replace`
/// on. Throws `LoadError` for other names or another number of layers.
std::vector<bool> sparse_layers(const ConfigReader& config, std::size_t layers, int default_first);

/// Names of the experts' tensors: `prefix` with each expert's index, then `gate`, `up` and `down`.
ExpertNames expert_names(const std::string& part, const std::string& gate = "gate_proj",
                         const std::string& up = "up_proj", const std::string& down = "down_proj");
/// Adds names of a shared part to those.
void name_shared_expert(ExpertNames& names, const std::string& part);

}  // namespace espalier::models
