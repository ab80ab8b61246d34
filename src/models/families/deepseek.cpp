#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

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
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_mlp_bias(decoder, config.boolean("mlp_bias", false));
  decoder.names.latent = {.q = "self_attn.q_proj",
                          .q_a = "self_attn.q_a_proj",
                          .q_a_norm = "self_attn.q_a_layernorm",
                          .q_b = "self_attn.q_b_proj",
                          .kv_a = "self_attn.kv_a_proj_with_mqa",
                          .kv_a_norm = "self_attn.kv_a_layernorm",
                          .kv_b = "self_attn.kv_b_proj"};
  const LatentAttentionDescriptor attention = latent_attention(config, interleaved);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.mixer = attention;
  }
  return decoder;
}

}  // namespace

// DeepSeek-V2 and Lite: softmax scores, groups by their best expert.
Descriptor read_deepseek_v2(ConfigReader& config) {
  Descriptor decoder = latent_decoder(config, true);
  ExpertsDescriptor experts = deepseek_experts(config, decoder);
  const std::string method = config.string("topk_method", "greedy");
  if (method != "greedy" && method != "group_limited_greedy") {
    config.fail("topk_method", "is '" + method + "', which is not supported");
  }
  layers::RouterRule& rule = experts.router.rule;
  rule.score = layers::RouterRule::Score::softmax;
  rule.group_score = layers::RouterRule::GroupScore::best;
  rule.groups = method == "greedy" ? 1 : rule.groups;
  // The reference never divides by the sum, whatever the file says.
  rule.normalize = false;
  experts.router.correction_bias = false;
  config.ignore("scoring_func");
  config.ignore("moe_layer_freq");
  set_experts(decoder, experts, sparse_layers(config, decoder.layers.size(), 0));
  return decoder;
}

// DeepSeek-V3, R1, Kimi K2 and others with their layout.
Descriptor read_deepseek_v3(ConfigReader& config) {
  Descriptor decoder = latent_decoder(config, config.boolean("rope_interleave", true));
  const ExpertsDescriptor experts = deepseek_experts(config, decoder);
  config.ignore("scoring_func");
  config.ignore("topk_method");
  config.ignore("moe_layer_freq");
  set_experts(decoder, experts, sparse_layers(config, decoder.layers.size(), 3));
  return decoder;
}

// GLM 4.7 Flash: DeepSeek-V3's layout.
Descriptor read_glm4_moe_lite(ConfigReader& config) {
  config.set_defaults({{"first_k_dense_replace", 1}});
  return read_deepseek_v3(config);
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

}  // namespace espalier::models
