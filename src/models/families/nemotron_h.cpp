#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

/// From the list, or from the older pattern with a letter a layer.
std::vector<std::string> read_kinds(const ConfigReader& config) {
  const std::vector<std::string> kinds = {"linear_attention", "full_attention", "mlp", "moe"};
  std::vector<std::string> layers = layer_kinds(config, "layers_block_type", kinds);
  const std::map<char, std::string> letters = {
      {'M', kinds[0]}, {'*', kinds[1]}, {'-', kinds[2]}, {'E', kinds[3]}};
  const std::string pattern = config.string("hybrid_override_pattern", "");
  if (!layers.empty()) {
    return layers;
  }
  for (const char letter : pattern) {
    const auto kind = letters.find(letter);
    if (kind == letters.end()) {
      config.fail("hybrid_override_pattern", "has an unknown letter");
    }
    layers.push_back(kind->second);
  }
  if (layers.empty()) {
    config.fail("layers_block_type", "is missing");
  }
  return layers;
}

Mamba2Descriptor read_nemotron_mixer(const ConfigReader& config, float eps) {
  const int groups = config.integer("n_groups", 8);
  const int heads = config.integer("mamba_num_heads", 128);
  if (groups < 1 || heads % groups != 0) {
    config.fail("n_groups", "does not divide the heads");
  }
  const bool bias = config.boolean("use_bias", false);
  return {.heads = heads,
          .head_dim = config.integer("mamba_head_dim", 64),
          .groups = groups,
          .states = config.integer("ssm_state_size", 128),
          .convolution = {.taps = config.integer("conv_kernel", 4),
                          .bias = config.boolean("use_conv_bias", true),
                          .activation = recurrent_activation(config, "mamba_hidden_act")},
          .input_bias = bias,
          .output_bias = bias,
          .least_step = static_cast<float>(config.number("time_step_min", 0.001)),
          .most_step = std::numeric_limits<float>::infinity(),
          .output_norm = Mamba2Descriptor::OutputNorm{.eps = eps, .groups = groups}};
}

ExpertsDescriptor read_experts(const ConfigReader& config, const MlpDescriptor& mlp) {
  const int latent = config.integer("moe_latent_size", 0);
  MlpDescriptor shared = mlp;
  shared.hidden = config.product("n_shared_experts",
                                 config.integer("moe_shared_expert_intermediate_size", 7688),
                                 config.integer("n_shared_experts", 1));
  return {
      .router = {.rule = {.experts = config.integer("n_routed_experts", 8),
                          .chosen = config.integer("num_experts_per_tok", 2),
                          .score = layers::RouterRule::Score::sigmoid,
                          .groups = config.integer("n_group", 1),
                          .chosen_groups = config.integer("topk_group", 1),
                          .normalize = config.boolean("norm_topk_prob", true),
                          .added_to_sum = 1e-20F,
                          .scale = static_cast<float>(config.number("routed_scaling_factor", 1))},
                 .correction_bias = true},
      .hidden = config.integer("moe_intermediate_size", 7688),
      .activation = mlp.activation,
      .gated = false,
      .shared = shared,
      .latent =
          latent > 0 ? std::optional(ExpertLatentDescriptor{latent, mlp.bias}) : std::nullopt};
}

TensorNames read_names(const Descriptor& decoder) {
  TensorNames names = decoder.names;
  names.embedding = "backbone.embeddings";
  names.final_norm = "backbone.norm_f";
  names.layers = "backbone.layers.";
  names.qkv = {"mixer.q_proj", "mixer.k_proj", "mixer.v_proj"};
  names.attention_output = "mixer.o_proj";
  names.attention_norm = "norm";
  names.mlp_norm = "norm";
  names.mlp_input = {"mixer.up_proj"};
  names.mlp_down = "mixer.down_proj";
  names.recurrent = "mixer.";
  names.experts.router = "mixer.gate";
  names.experts.correction_bias = "mixer.gate.e_score_correction_bias";
  names.experts.input = {"mixer.experts.{}.up_proj"};
  names.experts.down = "mixer.experts.{}.down_proj";
  names.experts.shared_input = {"mixer.shared_experts.up_proj"};
  names.experts.shared_down = "mixer.shared_experts.down_proj";
  names.experts.latent_input = "mixer.fc1_latent_proj";
  names.experts.latent_output = "mixer.fc2_latent_proj";
  return names;
}

}  // namespace

// Each layer is one part alone: Mamba 2, attention without positions, or a plain feed-forward part.
Descriptor read_nemotron_h(ConfigReader& config) {
  const std::vector<std::string> kinds = read_kinds(config);
  config.set_defaults({{"num_hidden_layers", kinds.size()}});
  if (config.contains("attention_head_dim")) {
    config.set_defaults({{"head_dim", config.integer("attention_head_dim")}});
  }
  Descriptor decoder = dense_decoder(config);
  decoder.final_norm = rms_norm(config, "layer_norm_epsilon");
  config.ignore("attention_bias");  // there are none, whatever the file says
  decoder.tied_head = false;
  const Mamba2Descriptor mamba = read_nemotron_mixer(config, decoder.final_norm.eps);
  const MlpDescriptor mlp{.hidden = config.integer("intermediate_size"),
                          .activation = read_activation(config, "mlp_hidden_act"),
                          .gated = false,
                          .bias = config.boolean("mlp_bias", false)};
  const ExpertsDescriptor experts = read_experts(config, mlp);
  const AttentionDescriptor attention = decoder.layers.front().attention();
  decoder.layers.clear();
  for (const std::string& kind : kinds) {
    LayerDescriptor layer{.mixer = std::monostate(), .feed_forward = std::monostate()};
    if (kind == "linear_attention" || kind == "full_attention") {
      layer.attention_norm = decoder.final_norm;
      layer.mixer = kind == "full_attention" ? MixerDescriptor(attention)
                                             : MixerDescriptor(RecurrentDescriptor(mamba));
    } else {
      layer.mlp_norm = decoder.final_norm;
      layer.feed_forward =
          kind == "mlp" ? FeedForwardDescriptor(mlp) : FeedForwardDescriptor(experts);
    }
    decoder.layers.push_back(layer);
  }
  decoder.names = read_names(decoder);
  config.require_off("sliding_window");
  config.require_off("num_nextn_predict_layers");
  ignore_keys(config, {"chunk_size", "expand", "mamba_proj_bias", "mamba_ssm_cache_dtype",
                       "moe_shared_expert_overlap", "mtp_layers_block_type", "num_logits_to_keep",
                       "rescale_prenorm_residual", "residual_in_fp32", "time_step_floor",
                       "time_step_limit", "time_step_max", "use_mamba_kernels"});
  return decoder;
}

}  // namespace espalier::models
