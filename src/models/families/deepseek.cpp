#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"
#include "models/families/gguf_settings.h"
#include "models/families/latent.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

constexpr float latent_norm_eps = 1e-6F;  // whatever the other norms have

/// YaRN with `mscale_all_dim` grows the scores once more.
double score_growth(const ConfigReader& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const std::optional<ConfigReader> rope = config.object(key);
    if (!rope || rope->string("rope_type", rope->string("type", "default")) == "default") {
      continue;
    }
    const double scale = rope->number("mscale_all_dim", 0);
    const double factor = rope->number("factor", 1);
    const double growth = scale == 0 || factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
    return growth * growth;
  }
  return 1;
}

LatentAttentionDescriptor latent_attention(const ConfigReader& config, bool interleaved) {
  const int nope = config.integer("qk_nope_head_dim");
  const int rope = config.integer("qk_rope_head_dim");
  config.ignore("qk_head_dim");
  RopeSettings settings = read_rope(config);
  settings.partial = 1;
  return {.heads = config.integer("num_attention_heads"),
          .query_rank = config.integer("q_lora_rank", 0),
          .kv_rank = config.integer("kv_lora_rank"),
          .nope_dim = nope,
          .rope_dim = rope,
          .value_dim = config.integer("v_head_dim"),
          .scale = static_cast<float>(score_growth(config) / std::sqrt(nope + rope)),
          .rope = make_rope(settings, rope, interleaved),
          .norm = {.eps = latent_norm_eps},
          .bias = config.boolean("attention_bias", false)};
}

/// Pre-norm RMS layers of latent attention with gated feed-forward parts.
Descriptor latent_decoder(ConfigReader& config, bool interleaved) {
  config.set_defaults({{"hidden_act", "silu"}, {"head_dim", config.integer("qk_rope_head_dim")}});
  config.replace("num_key_value_heads", config.integer("num_attention_heads"));
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_mlp_bias(decoder, config.boolean("mlp_bias", false));
  decoder.names.latent = latent_names();
  const LatentAttentionDescriptor attention = latent_attention(config, interleaved);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.mixer = attention;
  }
  return decoder;
}

/// Puts the mixture into the layers that have one, from `default_first` on where the file says
/// none.
void set_deepseek_experts(const ConfigReader& config, Descriptor& decoder,
                          const ExpertsDescriptor& experts, int default_first) {
  config.ignore("scoring_func");
  config.ignore("moe_layer_freq");
  set_experts(decoder, experts, sparse_layers(config, decoder.layers.size(), default_first));
}

}  // namespace

// DeepSeek-V2 and Lite: softmax scores, groups by their best expert.
Descriptor read_deepseek_v2(ConfigReader& config) {
  Descriptor decoder = latent_decoder(config, true);
  const std::string method = config.string("topk_method", "greedy");
  ExpertsDescriptor experts = deepseek_experts(config, decoder, method != "greedy");
  if (method != "greedy" && method != "group_limited_greedy") {
    config.fail("topk_method", "is '" + method + "', which is not supported");
  }
  layers::RouterRule& rule = experts.router.rule;
  rule.score = layers::RouterRule::Score::softmax;
  rule.group_score = layers::RouterRule::GroupScore::best;
  // The reference never divides by the sum, whatever the file says.
  rule.normalize = false;
  experts.router.correction_bias = false;
  if (experts.shared) {
    experts.shared->bias = config.boolean("mlp_bias", false);
  }
  set_deepseek_experts(config, decoder, experts, 0);
  return decoder;
}

// DeepSeek-V3, R1, Kimi K2 and others with their layout.
Descriptor read_deepseek_v3(ConfigReader& config) {
  config.set_defaults({{"routed_scaling_factor", 2.5}});
  Descriptor decoder = latent_decoder(config, config.boolean("rope_interleave", true));
  set_deepseek_experts(config, decoder, deepseek_experts(config, decoder), 3);
  config.ignore("topk_method");
  return decoder;
}

// DeepSeek-V3.2: an indexer chooses the `index_topk` positions that a token attends to. Up to so
// many positions it chooses all of them, and the context ends there.
Descriptor read_deepseek_v32(ConfigReader& config) {
  ignore_keys(config, {"index_head_dim", "index_n_heads", "layer_types", "indexer_types"});
  Descriptor decoder = read_deepseek_v3(config);
  decoder.context = std::min(decoder.context, config.integer("index_topk", 2048));
  return decoder;
}

// GLM 5: DeepSeek-V3.2's layout, some layers use the choice of another.
Descriptor read_glm_moe_dsa(ConfigReader& config) {
  config.ignore_all("index_topk_pattern");
  ignore_keys(config, {"index_topk_freq", "index_skip_topk_offset", "index_share_for_mtp_iteration",
                       "indexer_rope_interleave"});
  return read_deepseek_v32(config);
}

// GLM 4.7 Flash: DeepSeek-V3's layout.
Descriptor read_glm4_moe_lite(ConfigReader& config) {
  config.set_defaults({{"routed_scaling_factor", 1.8}});
  config.set_defaults({{"first_k_dense_replace", 1}});
  return read_deepseek_v3(config);
}

// A.X K1: DeepSeek-V3 with a norm behind each mixture.
Descriptor read_axk1(ConfigReader& config) {
  config.set_defaults({{"first_k_dense_replace", 1}});
  Descriptor decoder = read_deepseek_v3(config);
  decoder.names.mlp_post_norm = "post_mlp_layernorm";
  for (LayerDescriptor& layer : decoder.layers) {
    if (layer.experts() != nullptr) {
      layer.mlp_post_norm = decoder.final_norm;
    }
  }
  return decoder;
}

// MiniCPM3: dense latent attention, RoPE by halves, scaled embedding, residuals and logits.
Descriptor read_minicpm3(ConfigReader& config) {
  Descriptor decoder = latent_decoder(config, false);
  decoder.embedding_scale = static_cast<float>(config.number("scale_emb", 1));
  decoder.logit_scale = static_cast<float>(config.number("dim_model_base", decoder.width) /
                                           static_cast<double>(decoder.width));
  const auto depth = static_cast<double>(decoder.layers.size());
  for (LayerDescriptor& layer : decoder.layers) {
    layer.residual_scale =
        static_cast<float>(config.number("scale_depth", std::sqrt(depth)) / std::sqrt(depth));
  }
  return decoder;
}

// Youtu: dense layers of latent attention.
Descriptor read_youtu(ConfigReader& config) {
  config.set_defaults({{"tie_word_embeddings", true}});
  config.ignore("embedding_initializer_range");
  return latent_decoder(config, config.boolean("rope_interleave", true));
}

// Files from before the keys of latent attention alone give the sizes of whole heads, and keep both
// parts of the second matrix together.
Descriptor read_deepseek(const GgufReader& file) {
  constexpr int sigmoid = 2;
  const int rope = file.integer("rope.dimension_count");
  const int key = file.integer("attention.key_length");
  const int value = file.integer("attention.value_length");
  const int head = file.integer("attention.key_length_mla", key);
  nlohmann::json extra = {{"qk_rope_head_dim", rope},
                          {"qk_nope_head_dim", head - rope},
                          {"v_head_dim", file.integer("attention.value_length_mla", value)},
                          {"head_dim", head},
                          {"num_key_value_heads", file.integer("attention.head_count")},
                          {"norm_topk_prob", file.boolean("expert_weights_norm", false)},
                          {"routed_scaling_factor", file.number("expert_weights_scale", 1)}};
  const double growth = file.number("rope.scaling.yarn_log_multiplier", 0);
  const bool version_3 = file.integer("expert_gating_func", 1) == sigmoid;
  if (file.integer("expert_group_count", 1) > 1) {
    extra["topk_method"] = "group_limited_greedy";
  }
  ConfigReader config = gguf_settings(file, version_3 ? "deepseek_v3" : "deepseek_v2", extra);
  Descriptor decoder = version_3 ? read_deepseek_v3(config) : read_deepseek_v2(config);
  use_gguf_tensors(decoder);
  decoder.names.latent = {.q = "attn_q",
                          .q_a = "attn_q_a",
                          .q_a_norm = "attn_q_a_norm",
                          .q_b = "attn_q_b",
                          .kv_a = "attn_kv_a_mqa",
                          .kv_a_norm = "attn_kv_a_norm",
                          .kv_b = "attn_kv_b",
                          .k_b = "attn_k_b",
                          .v_b = "attn_v_b"};
  const bool corrects = file.any_layer_has("exp_probs_b.bias");
  for (LayerDescriptor& layer : decoder.layers) {
    if (ExpertsDescriptor* experts = layer.experts(); experts != nullptr) {
      experts->router.correction_bias = corrects;
    }
    if (growth != 0) {
      auto& attention = std::get<LatentAttentionDescriptor>(layer.mixer);
      const double factor = file.number("rope.scaling.factor", 1);
      const double scale = growth * std::log(factor) + 1;
      attention.scale *= static_cast<float>(scale * scale);
      attention.rope.magnitude = 1;  // DeepSeek's two magnitudes are one, and cancel
    }
  }
  config.check_all_read();
  return decoder;
}

}  // namespace espalier::models
