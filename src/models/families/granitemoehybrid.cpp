#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/gguf_settings.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

void set_granite_names(TensorNames& names) {
  names.mlp_input = {"shared_mlp.input_linear"};
  names.mlp_down = "shared_mlp.output_linear";
  names.recurrent = "mamba.";
  names.experts.router = "block_sparse_moe.router.layer";
  names.experts.input = {"block_sparse_moe.input_linear"};
  names.experts.down = "block_sparse_moe.output_linear";
  names.experts.shared_input = names.mlp_input;
  names.experts.shared_down = names.mlp_down;
}

/// The part that every token goes through, with experts beside it where there are any.
FeedForwardDescriptor read_feed_forward(const ConfigReader& config) {
  const MlpDescriptor shared{.hidden = config.integer("shared_intermediate_size", 1024),
                             .activation = read_activation(config, "hidden_act")};
  const int experts = config.integer("num_local_experts", 8);
  if (experts == 0) {
    ignore_keys(config, {"num_experts_per_tok"});
    return shared;
  }
  return ExpertsDescriptor{.router = {.rule = {.experts = experts,
                                               .chosen = config.integer("num_experts_per_tok", 2),
                                               .normalize = true}},
                           .hidden = config.integer("intermediate_size"),
                           .activation = shared.activation,
                           .layout = ExpertsDescriptor::Layout::stacked,
                           .shared = shared};
}

}  // namespace

// Granite 4: Mamba 2 with attention in a few layers, and Granite's multipliers.
Descriptor read_granitemoehybrid(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  const RopeSettings rope = read_rope(config);
  const std::string positions = config.string("position_embedding_type", "nope");
  if (positions == "rope") {
    set_rope(decoder, rope);
  } else if (positions != "nope") {
    config.fail("position_embedding_type", "is '" + positions + "', which is not supported");
  }
  Mamba2Descriptor mamba = read_mamba2_part(
      config, config.product("mamba_expand", config.integer("mamba_expand", 2), decoder.width));
  mamba.output_norm =
      Mamba2Descriptor::OutputNorm{.eps = decoder.final_norm.eps, .groups = mamba.groups};
  const std::vector<std::string> kinds =
      layer_kinds(config, "layer_types", {"linear_attention", "full_attention"});
  const auto scale = static_cast<float>(config.number("attention_multiplier", 1));
  const auto residual_scale = static_cast<float>(config.number("residual_multiplier", 1));
  const FeedForwardDescriptor feed_forward = read_feed_forward(config);
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    LayerDescriptor& layer = decoder.layers[i];
    layer.attention().scale = scale;
    layer.residual_scale = residual_scale;
    layer.feed_forward = feed_forward;
    if (kinds.empty() || kinds[i] == "linear_attention") {
      layer.mixer = RecurrentDescriptor(mamba);
    }
  }
  decoder.embedding_scale = static_cast<float>(config.number("embedding_multiplier", 1));
  decoder.logit_scale = static_cast<float>(1 / config.number("logits_scaling", 1));
  set_granite_names(decoder.names);
  ignore_keys(config, {"output_router_logits", "router_aux_loss_coef", "intermediate_size",
                       "normalization_function", "init_method"});
  return decoder;
}

Descriptor read_granitemoehybrid(const GgufReader& file) {
  const int inner = file.integer("ssm.inner_size");
  const int width = file.integer("embedding_length");
  const int dense = file.integer("feed_forward_length", 0);
  const int experts = file.integer("expert_count", 0);
  const bool rotates = file.boolean("rope.scaling.finetuned", false);
  nlohmann::json kinds = nlohmann::json::array();
  for (const bool attends : gguf_attending_layers(file)) {
    kinds.push_back(attends ? "full_attention" : "linear_attention");
  }
  nlohmann::json settings = gguf_mamba2_settings(file);
  settings.update(
      {{"layer_types", kinds},
       {"mamba_expand", width > 0 ? inner / width : 0},
       {"num_local_experts", experts},
       {"shared_intermediate_size", file.integer("expert_shared_feed_forward_length", dense)},
       {"position_embedding_type", rotates ? "rope" : "nope"},
       {"embedding_multiplier", file.number("embedding_scale", 1)},
       {"attention_multiplier", file.number("attention.scale", 1)},
       {"residual_multiplier", file.number("residual_scale", 1)},
       {"logits_scaling", file.number("logit_scale", 1)}});
  ConfigReader config = gguf_settings(file, "granitemoehybrid", settings,
                                      {"num_experts", "shared_expert_intermediate_size"});
  config.ignore("moe_intermediate_size");
  Descriptor decoder = read_granitemoehybrid(config);
  use_gguf_tensors(decoder);
  decoder.names.recurrent_renamed = gguf_mamba_names();
  for (LayerDescriptor& layer : decoder.layers) {
    auto* attention = std::get_if<AttentionDescriptor>(&layer.mixer);
    if (attention != nullptr && attention->rope) {
      attention->rope->interleaved = true;  // the rows of q and k were reordered
    }
  }
  config.check_all_read();
  return decoder;
}

}  // namespace espalier::models
