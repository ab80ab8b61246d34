#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

/// What the settings say beside those of the model: attention's and the mixture's own.
ConfigReader own_settings(const ConfigReader& config, const char* key) {
  return config.object(key).value_or(ConfigReader(config.path(), nlohmann::json::object()));
}

ExpertsDescriptor read_mixture(const ConfigReader& config) {
  const std::optional<ConfigReader> function = config.object("ffn_act_fn");
  ConfigReader settings = config;
  settings.set_defaults({{"hidden_act", function ? function->string("name", "silu") : "silu"},
                         {"num_experts", config.integer("moe_num_experts", 4)},
                         {"num_experts_per_tok", config.integer("moe_top_k", 1)},
                         {"ffn_hidden_size", 3584}});
  ExpertsDescriptor experts = softmax_experts(settings, "ffn_hidden_size");
  // The exponent of the norm that weights are divided by; null for none.
  constexpr const char* exponent = "moe_normalize_expert_weights";
  const std::vector<std::string> keys = config.keys();
  const bool states_none =
      std::ranges::find(keys, exponent) != keys.end() && !config.contains(exponent);
  if (config.number(exponent, 1) != 1) {
    config.fail(exponent, "is not 1, which is not supported");
  }
  experts.router.rule.normalize = !states_none;
  experts.layout = ExpertsDescriptor::Layout::below;
  ignore_keys(config, {"moe_jitter_eps", "moe_loss_weight", "uniform_expert_assignment",
                       "hidden_size", "model_type", "dtype", "torch_dtype"});
  return experts;
}

}  // namespace

// DBRX: layer norms without biases, q, k and v in one matrix with limited results, experts in every
// layer.
Descriptor read_dbrx(ConfigReader& config) {
  const ConfigReader attention = own_settings(config, "attn_config");
  config.set_defaults({{"hidden_size", config.integer("d_model", 2048)},
                       {"num_attention_heads", config.integer("n_heads", 16)},
                       {"num_hidden_layers", config.integer("n_layers", 24)},
                       {"max_position_embeddings", config.integer("max_seq_len", 2048)},
                       {"intermediate_size", 0}});
  config.replace("num_key_value_heads", attention.integer("kv_n_heads", 1));
  config.require_off("tie_word_embeddings");
  config.replace("tie_word_embeddings", false);
  Descriptor decoder = dense_decoder(config);
  constexpr float norm_eps = 1e-5F;
  set_pre_norms(decoder, {.kind = NormDescriptor::Kind::layer, .eps = norm_eps});
  set_rope(decoder, read_rope(config, {}, attention.number("rope_theta", 10000)));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_limit = static_cast<float>(attention.number("clip_qkv", 0));
  }
  ignore_keys(attention, {"attn_pdrop", "model_type", "dtype", "torch_dtype"});
  TensorNames& names = decoder.names;
  names.embedding = "transformer.wte";
  names.final_norm = "transformer.norm_f";
  names.layers = "transformer.blocks.";
  names.qkv = {"norm_attn_norm.attn.Wqkv"};
  names.attention_output = "norm_attn_norm.attn.out_proj";
  names.attention_norm = "norm_attn_norm.norm_1";
  names.mlp_norm = "norm_attn_norm.norm_2";
  names.experts.router = "ffn.router.layer";
  names.experts.input = {"ffn.experts.mlp.w1", "ffn.experts.mlp.v1"};
  names.experts.down = "ffn.experts.mlp.w2";
  names.experts.suffix = "";
  set_experts(decoder, read_mixture(own_settings(config, "ffn_config")));
  ignore_keys(config, {"resid_pdrop", "emb_pdrop"});
  return decoder;
}

}  // namespace espalier::models
