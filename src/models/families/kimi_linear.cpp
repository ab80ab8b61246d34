#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/latent.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

/// The layers of latent attention by the older nested settings, which count from 1; empty when they
/// name none.
std::vector<int> older_attending_layers(const ConfigReader& config) {
  const std::optional<ConfigReader> nested = config.object("linear_attn_config");
  if (!nested) {
    return {};
  }
  nested->ignore("kda_layers");
  return nested->integers("full_attn_layers");
}

/// Whether each layer has latent attention.
std::vector<bool> attending_layers(const ConfigReader& config, int layers) {
  const std::vector<std::string> kinds =
      layer_kinds(config, "layer_types", {"linear_attention", "full_attention"});
  const std::vector<int> older = older_attending_layers(config);
  std::vector<bool> attends;
  for (int i = 0; i < layers; ++i) {
    if (!kinds.empty()) {
      attends.push_back(kinds[static_cast<std::size_t>(i)] == "full_attention");
    } else if (!older.empty()) {
      attends.push_back(std::ranges::find(older, i + 1) != older.end());
    } else {
      attends.push_back(i > 0 && i % 4 == 0);
    }
  }
  return attends;
}

KimiDeltaDescriptor read_kimi_mixer(const ConfigReader& config, float eps) {
  KimiDeltaDescriptor mixer{.heads = config.integer("linear_num_heads", 32),
                            .head_dim = config.integer("linear_head_dim", 128),
                            .taps = config.integer("linear_conv_kernel_dim", 4),
                            .activation = recurrent_activation(config, "hidden_act"),
                            .norm_eps = eps};
  if (const std::optional<ConfigReader> nested = config.object("linear_attn_config")) {
    mixer.heads = nested->integer("num_heads", mixer.heads);
    mixer.head_dim = nested->integer("head_dim", mixer.head_dim);
    mixer.taps = nested->integer("short_conv_kernel_size", mixer.taps);
  }
  return mixer;
}

/// Multi-head latent attention without positions: every frequency is 0.
LatentAttentionDescriptor read_latent(const ConfigReader& config, int heads) {
  LatentAttentionDescriptor latent{};
  latent.heads = heads;
  latent.query_rank = config.integer("q_lora_rank", 0);
  latent.kv_rank = config.integer("kv_lora_rank");
  latent.nope_dim = config.integer("qk_nope_head_dim");
  latent.rope_dim = config.integer("qk_rope_head_dim");
  latent.value_dim = config.integer("v_head_dim");
  latent.scale = 1.0F / std::sqrt(static_cast<float>(latent.nope_dim + latent.rope_dim));
  latent.rope = make_rope({.partial = 0, .scaling = ProportionalRope{}, .context_limit = {}},
                          latent.rope_dim);
  latent.norm.eps = 1e-6F;
  latent.bias = config.boolean("attention_bias", false);
  return latent;
}

ExpertsDescriptor read_experts(const ConfigReader& config) {
  const int hidden = config.integer("moe_intermediate_size");
  const layers::Activation activation = recurrent_activation(config, "hidden_act");
  return {.router =
              {.rule = {.experts =
                            config.integer("num_experts", config.integer("num_local_experts", 256)),
                        .chosen = config.integer("num_experts_per_token",
                                                 config.integer("num_experts_per_tok", 8)),
                        .score = layers::RouterRule::Score::sigmoid,
                        .groups = config.integer("num_expert_group", config.integer("n_group", 1)),
                        .chosen_groups = config.integer("topk_group", 1),
                        .normalize = config.boolean("moe_renormalize",
                                                    config.boolean("norm_topk_prob", true)),
                        .added_to_sum = 1e-20F,
                        .scale = static_cast<float>(config.number("routed_scaling_factor", 2.446))},
               .correction_bias = true},
          .hidden = hidden,
          .activation = activation,
          .shared = MlpDescriptor{
              .hidden = config.product(
                  "num_shared_experts", hidden,
                  config.integer("num_shared_experts", config.integer("n_shared_experts", 1))),
              .activation = activation}};
}

void set_kimi_names(TensorNames& names) {
  names.recurrent = "self_attn.";
  names.mlp_input = {"block_sparse_moe.gate_proj", "block_sparse_moe.up_proj"};
  names.mlp_down = "block_sparse_moe.down_proj";
  names.latent = latent_names();
  names.experts.router = "block_sparse_moe.gate";
  names.experts.correction_bias = "block_sparse_moe.gate.e_score_correction_bias";
  names.experts.input = {"block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"};
  names.experts.down = "block_sparse_moe.experts.{}.w2";
  names.experts.shared_input = {"block_sparse_moe.shared_experts.gate_proj",
                                "block_sparse_moe.shared_experts.up_proj"};
  names.experts.shared_down = "block_sparse_moe.shared_experts.down_proj";
}

}  // namespace

// Kimi delta attention with one layer of latent attention in four, and experts behind the first
// layers.
Descriptor read_kimi_linear(ConfigReader& config) {
  config.set_defaults({{"max_position_embeddings", config.integer("model_max_length", 1 << 20)}});
  config.replace("num_key_value_heads", config.integer("num_attention_heads"));
  Descriptor decoder = dense_decoder(config);
  decoder.tied_head = false;  // whatever the file says: the head is always there
  set_pre_norms(decoder, rms_norm(config));
  set_activation(decoder, recurrent_activation(config, "hidden_act"));
  set_kimi_names(decoder.names);
  const KimiDeltaDescriptor delta = read_kimi_mixer(config, decoder.final_norm.eps);
  const LatentAttentionDescriptor latent =
      read_latent(config, decoder.layers.front().attention().heads);
  const ExpertsDescriptor experts = read_experts(config);
  const std::vector<bool> attends = attending_layers(config, config.integer("num_hidden_layers"));
  const std::vector<std::string> feed_forward = config.strings("mlp_layer_types");
  const auto dense = static_cast<std::size_t>(config.integer("first_k_dense_replace", 1));
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    LayerDescriptor& layer = decoder.layers[i];
    layer.mixer =
        attends[i] ? MixerDescriptor(latent) : MixerDescriptor(RecurrentDescriptor(delta));
    if (feed_forward.size() == decoder.layers.size() ? feed_forward[i] == "sparse" : i >= dense) {
      layer.feed_forward = experts;
    }
  }
  config.require_off("num_nextn_predict_layers");
  ignore_keys(config,
              {"qk_head_dim", "moe_layer_freq", "mla_use_nope", "moe_router_activation_func",
               "use_grouped_topk", "rope_scaling", "rope_theta", "rope_parameters"});
  return decoder;
}

}  // namespace espalier::models
