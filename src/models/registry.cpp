#include "models/registry.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "models/families/families.h"

namespace espalier::models {
namespace {

// One line a family, alphabetical.
constexpr std::array families = {
    Family{"afmoe", "", read_afmoe, nullptr},
    Family{"apertus", "", read_apertus, nullptr},
    Family{"arcee", "", read_arcee, nullptr},
    Family{"aria_text", "", read_aria, nullptr},
    Family{"axk1", "", read_axk1, nullptr},
    Family{"bamba", "", read_bamba, nullptr},
    Family{"bert", "", read_bert, nullptr},
    Family{"biogpt", "", read_biogpt, nullptr},
    Family{"bitnet", "", read_bitnet, nullptr},
    Family{"bloom", "", read_bloom, nullptr},
    Family{"codegen", "", read_codegen, nullptr},
    Family{"cohere", "", read_cohere, nullptr},
    Family{"cohere2", "", read_cohere2, nullptr},
    Family{"cohere2_moe", "", read_cohere2_moe, nullptr},
    Family{"cwm", "", read_cwm, nullptr},
    Family{"dbrx", "", read_dbrx, nullptr},
    Family{"deepseek_v2", "deepseek2", read_deepseek_v2, read_deepseek},
    Family{"deepseek_v3", "", read_deepseek_v3, nullptr},
    Family{"deepseek_v32", "", read_deepseek_v32, nullptr},
    Family{"dots1", "dots1", read_dots1, read_dots1},
    Family{"ernie4_5", "", read_ernie4_5, nullptr},
    Family{"ernie4_5_moe", "", read_ernie4_5_moe, nullptr},
    Family{"exaone4", "", read_exaone4, nullptr},
    Family{"exaone_moe", "", read_exaone_moe, nullptr},
    Family{"falcon", "", read_falcon, nullptr},
    Family{"falcon_h1", "falcon-h1", read_falcon_h1, read_falcon_h1},
    Family{"falcon_mamba", "", read_falcon_mamba, nullptr},
    Family{"flex_olmo", "", read_flex_olmo, nullptr},
    Family{"gemma", "gemma", read_gemma, read_gemma},
    Family{"gemma2", "gemma2", read_gemma2, read_gemma2},
    Family{"gemma3_text", "gemma3", read_gemma3, read_gemma3},
    Family{"gemma3n_text", "", read_gemma3n, nullptr},
    Family{"gemma4_text", "", read_gemma4, nullptr},
    Family{"gemma4_unified_text", "", read_gemma4_unified, nullptr},
    Family{"glm", "", read_glm, nullptr},
    Family{"glm4", "", read_glm4, nullptr},
    Family{"glm4_moe", "", read_glm4_moe, nullptr},
    Family{"glm4_moe_lite", "", read_glm4_moe_lite, nullptr},
    Family{"glm4v_moe_text", "", read_glm4v_moe, nullptr},
    Family{"glm4v_text", "", read_glm4v, nullptr},
    Family{"glm_moe_dsa", "", read_glm_moe_dsa, nullptr},
    Family{"gpt-sw3", "", read_gpt2, nullptr},
    Family{"gpt2", "", read_gpt2, nullptr},
    Family{"gpt_bigcode", "", read_gpt_bigcode, nullptr},
    Family{"gpt_neo", "", read_gpt_neo, nullptr},
    Family{"gpt_neox", "", read_gpt_neox, nullptr},
    Family{"gpt_oss", "gpt-oss", read_gpt_oss, read_gpt_oss},
    Family{"gptj", "", read_gptj, nullptr},
    Family{"granite", "granite", read_granite, read_granite},
    Family{"granite4_vision_text", "", read_granite, nullptr},
    Family{"granite_swa", "", read_granite_swa, nullptr},
    Family{"granitemoe", "granitemoe", read_granitemoe, read_granite},
    Family{"granitemoe_swa", "", read_granitemoe_swa, nullptr},
    Family{"granitemoehybrid", "granitehybrid", read_granitemoehybrid, read_granitemoehybrid},
    Family{"granitemoeshared", "", read_granitemoe, nullptr},
    Family{"helium", "", read_helium, nullptr},
    Family{"hunyuan_v1_dense", "", read_hunyuan_v1_dense, nullptr},
    Family{"hunyuan_v1_moe", "", read_hunyuan_v1_moe, nullptr},
    Family{"hy_v3", "", read_hy_v3, nullptr},
    Family{"hyperclovax", "", read_hyperclovax, nullptr},
    Family{"jais2", "", read_jais2, nullptr},
    Family{"jamba", "", read_jamba, nullptr},
    Family{"kimi_linear", "", read_kimi_linear, nullptr},
    Family{"lfm2", "lfm2", read_lfm2, read_lfm2},
    Family{"lfm2_moe", "lfm2moe", read_lfm2_moe, read_lfm2_moe},
    Family{"llama", "llama", read_llama, read_llama},
    Family{"llama4_text", "", read_llama4, nullptr},
    Family{"mamba", "mamba", read_mamba, read_mamba},
    Family{"mamba2", "mamba2", read_mamba2, read_mamba2},
    Family{"mellum", "", read_mellum, nullptr},
    Family{"mimo_v2_flash", "", read_mimo_v2_flash, nullptr},
    Family{"minicpm3", "", read_minicpm3, nullptr},
    Family{"minimax", "", read_minimax, nullptr},
    Family{"minimax_m2", "", read_minimax_m2, nullptr},
    Family{"ministral", "", read_mistral, nullptr},
    Family{"ministral3", "", read_ministral3, nullptr},
    Family{"mistral", "", read_mistral, nullptr},
    Family{"mixtral", "", read_mixtral, nullptr},
    Family{"modernbert", "", read_modernbert, nullptr},
    Family{"mpt", "", read_mpt, nullptr},
    Family{"nanochat", "", read_nanochat, nullptr},
    Family{"nemotron", "", read_nemotron, nullptr},
    Family{"nemotron_h", "", read_nemotron_h, nullptr},
    Family{"nomic_bert", "", read_nomic_bert, nullptr},
    Family{"olmo", "", read_olmo, nullptr},
    Family{"olmo2", "", read_olmo2, nullptr},
    Family{"olmo3", "", read_olmo2, nullptr},
    Family{"olmo_hybrid", "", read_olmo_hybrid, nullptr},
    Family{"olmoe", "olmoe", read_olmoe, read_olmoe},
    Family{"openai-gpt", "", read_openai_gpt, nullptr},
    Family{"opt", "", read_opt, nullptr},
    Family{"persimmon", "", read_persimmon, nullptr},
    Family{"phi", "", read_phi, nullptr},
    Family{"phi3", "", read_phi3, nullptr},
    Family{"phimoe", "", read_phimoe, nullptr},
    Family{"qwen2", "qwen2", read_qwen2, read_qwen2},
    Family{"qwen2_5_omni_text", "", read_qwen2_vl, nullptr},
    Family{"qwen2_5_vl", "", read_qwen2_vl, nullptr},
    Family{"qwen2_5_vl_text", "", read_qwen2_vl, nullptr},
    Family{"qwen2_moe", "qwen2moe", read_qwen2_moe, read_qwen2_moe},
    Family{"qwen2_vl", "", read_qwen2_vl, nullptr},
    Family{"qwen2_vl_text", "", read_qwen2_vl, nullptr},
    Family{"qwen3", "qwen3", read_qwen3, read_qwen3},
    Family{"qwen3_5_moe_text", "", read_qwen3_5_moe, nullptr},
    Family{"qwen3_5_text", "", read_qwen3_5, nullptr},
    Family{"qwen3_moe", "qwen3moe", read_qwen3_moe, read_qwen3_moe},
    Family{"qwen3_next", "qwen3next", read_qwen3_next, read_qwen3_next},
    Family{"qwen3_omni_moe_text", "", read_qwen3_omni_moe, nullptr},
    Family{"qwen3_vl_moe_text", "", read_qwen3_vl_moe, nullptr},
    Family{"qwen3_vl_text", "", read_qwen3_vl, nullptr},
    Family{"recurrent_gemma", "", read_recurrent_gemma, nullptr},
    Family{"roberta", "", read_roberta, nullptr},
    Family{"seed_oss", "", read_seed_oss, nullptr},
    Family{"smollm3", "smollm3", read_smollm3, read_smollm3},
    Family{"solar_open", "", read_solar_open, nullptr},
    Family{"stablelm", "", read_stablelm, nullptr},
    Family{"starcoder2", "", read_starcoder2, nullptr},
    Family{"vaultgemma", "", read_vaultgemma, nullptr},
    Family{"xlm-roberta", "", read_roberta, nullptr},
    Family{"youtu", "", read_youtu, nullptr},
};

/// A key of a model type's settings.
struct TypeAndKey {
  std::string_view model_type;
  std::string_view key;
};

/// What makers' files say and transformers reads nowhere: it follows from other settings, or names
/// what all models of the type do.
constexpr auto spare_keys = std::to_array<TypeAndKey>({
    {"bloom", "skip_bias_add"},
    {"bloom", "skip_bias_add_qkv"},
    {"cohere", "model_max_length"},
    {"cohere2", "layer_switch"},
    {"cohere2", "model_max_length"},
    {"cohere2", "order_of_interleaved_layers"},
    {"cohere2", "position_embedding_type"},
    {"cohere2", "rotary_pct"},
    {"cohere2", "use_embedding_sharing"},
    {"cohere2", "use_gated_activation"},
    {"cohere2", "use_parallel_block"},
    {"cohere2", "use_parallel_embedding"},
    {"falcon_h1", "mamba_use_mlp"},
    {"falcon_h1", "mlp_expansion_factor"},
    {"falcon_h1", "time_step_floor"},
    {"falcon_h1", "time_step_max"},
    {"falcon_h1", "time_step_min"},
    {"gemma2", "sliding_window_size"},
    {"gptj", "rotary"},
    {"gptj", "scale_attn_weights"},
    {"hunyuan_v1_dense", "attention_head_dim"},
    {"hunyuan_v1_dense", "cla_share_factor"},
    {"hunyuan_v1_dense", "dense_list"},
    {"hunyuan_v1_dense", "enable_lm_head_fp32"},
    {"hunyuan_v1_dense", "im_end_id"},
    {"hunyuan_v1_dense", "im_newline_id"},
    {"hunyuan_v1_dense", "im_start_id"},
    {"hunyuan_v1_dense", "mask_init_id"},
    {"hunyuan_v1_dense", "norm_type"},
    {"hunyuan_v1_dense", "org_vocab_size"},
    {"hunyuan_v1_dense", "pad_id"},
    {"hunyuan_v1_dense", "pool_type"},
    {"hunyuan_v1_dense", "text_end_id"},
    {"hunyuan_v1_dense", "text_start_id"},
    {"hunyuan_v1_dense", "use_qk_norm"},
    {"hunyuan_v1_dense", "use_rotary_pos_emb"},
    {"hunyuan_v1_moe", "attention_head_dim"},
    {"hunyuan_v1_moe", "cla_share_factor"},
    {"hunyuan_v1_moe", "dense_list"},
    {"hunyuan_v1_moe", "enable_lm_head_fp32"},
    {"hunyuan_v1_moe", "im_end_id"},
    {"hunyuan_v1_moe", "im_newline_id"},
    {"hunyuan_v1_moe", "im_start_id"},
    {"hunyuan_v1_moe", "mask_init_id"},
    {"hunyuan_v1_moe", "norm_type"},
    {"hunyuan_v1_moe", "org_vocab_size"},
    {"hunyuan_v1_moe", "pad_id"},
    {"hunyuan_v1_moe", "pool_type"},
    {"hunyuan_v1_moe", "text_end_id"},
    {"hunyuan_v1_moe", "text_start_id"},
    {"hunyuan_v1_moe", "use_qk_norm"},
    {"hunyuan_v1_moe", "use_rotary_pos_emb"},
    {"jamba", "mamba_inner_layernorms"},
    {"jamba", "n_ctx"},
    {"minimax_m2", "attn_type_list"},
    {"minimax_m2", "layernorm_full_attention_beta"},
    {"minimax_m2", "layernorm_linear_attention_beta"},
    {"minimax_m2", "layernorm_mlp_beta"},
    {"minimax_m2", "max_model_len"},
    {"minimax_m2", "mlp_intermediate_size"},
    {"minimax_m2", "mtp_transformer_layers"},
    {"minimax_m2", "num_mtp_modules"},
    {"minimax_m2", "qk_norm_type"},
    {"minimax_m2", "scoring_func"},
    {"minimax_m2", "shared_moe_mode"},
    {"minimax_m2", "swa_rope_theta"},
    {"minimax_m2", "use_mtp"},
    {"minimax_m2", "use_qk_norm"},
    {"minimax_m2", "use_routing_bias"},
    {"nemotron_h", "num_query_groups"},
    {"nemotron_h", "rms_norm_eps"},
    {"nemotron_h", "time_step_rank"},
    {"phi3", "full_attn_mod"},
    {"phi3", "interpolate_factor"},
    {"starcoder2", "activation_function"},
    {"starcoder2", "layer_norm_epsilon"},
    {"starcoder2", "mlp_type"},
    {"starcoder2", "norm_type"},
    {"starcoder2", "scale_attn_weights"},
});

/// What makers' files say to be off, and would have to be.
constexpr auto keys_of_what_is_off = std::to_array<TypeAndKey>({
    {"falcon", "apply_residual_connection_post_layernorm"},
    {"hunyuan_v1_dense", "use_cla"},
    {"hunyuan_v1_moe", "use_cla"},
    {"minimax_m2", "shared_intermediate_size"},
    {"phi3", "lm_head_bias"},
    {"phi3", "mlp_bias"},
});

void read_spare_keys(const ConfigReader& config, std::string_view type) {
  for (const auto& [model_type, key] : spare_keys) {
    if (model_type == type) {
      config.ignore_all(key);
    }
  }
  for (const auto& [model_type, key] : keys_of_what_is_off) {
    if (model_type == type) {
      config.require_off(key);
    }
  }
}

/// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

[[noreturn]] void fail_unknown(const std::string& path, const std::string& what,
                               const std::string& name, std::string_view Family::*member) {
  constexpr std::size_t shown = 5;
  std::set<std::pair<std::size_t, std::string_view>> nearest;
  for (const Family& family : families) {
    if (!(family.*member).empty()) {
      nearest.insert({distance(name, family.*member), family.*member});
    }
  }
  std::string names;
  std::size_t count = 0;
  for (const auto& [unused, candidate] : nearest) {
    if (count++ == shown) {
      break;
    }
    names += (names.empty() ? "" : ", ") + std::string(candidate);
  }
  throw base::LoadError(path + ": " + what + " '" + name +
                        "' is not supported; the nearest that are: " + names + ".");
}

/// The largest count of rows, columns or state elements that a part of a layer leads to.
struct LargestCount {
  double operator()(const std::monostate& /*unused*/) const { return 0; }
  double operator()(const AttentionDescriptor& part) const {
    // With a gate for each query element; keys and values are not more.
    return 2.0 * part.heads * std::max({part.head_dim, part.value_dim, 1});
  }
  double operator()(const EncoderAttentionDescriptor& part) const {
    return 1.0 * part.heads * part.head_dim;
  }
  double operator()(const LatentAttentionDescriptor& part) const {
    return part.heads * (1.0 * part.nope_dim + part.rope_dim + part.value_dim) + part.kv_rank;
  }
  double operator()(const ParallelMixerDescriptor& part) const {
    return std::max((*this)(part.attention), (*this)(part.mamba));
  }
  double operator()(const RecurrentDescriptor& part) const { return std::visit(*this, part); }
  double operator()(const MambaDescriptor& part) const {
    return (part.channels + padding) * (part.states + 2.0) + part.time_rank +
           1.0 * part.channels * part.convolution.taps;
  }
  double operator()(const Mamba2Descriptor& part) const {
    const double rows = 2.0 * part.heads * part.head_dim + 2.0 * part.groups * part.states;
    return rows * (part.convolution.taps + 1.0) +
           1.0 * part.heads * part.states * (part.head_dim + padding);
  }
  double operator()(const GatedDeltaDescriptor& part) const {
    const double rows =
        1.0 * part.key_heads * part.key_dim + 1.0 * part.value_heads * part.value_dim;
    return 2 * rows * (part.taps + 1.0) +
           1.0 * part.value_heads * part.key_dim * (part.value_dim + padding);
  }
  double operator()(const KimiDeltaDescriptor& part) const {
    return 1.0 * part.heads * part.head_dim * (3.0 * part.taps + part.head_dim + padding);
  }
  double operator()(const RgLruDescriptor& part) const { return part.channels * (part.taps + 2.0); }
  double operator()(const ShortConvolutionDescriptor& part) const {
    return part.channels * (part.convolution.taps + 3.0);
  }
  double operator()(const LightningDescriptor& part) const {
    return 1.0 * part.heads * part.head_dim * (part.head_dim + padding);
  }
  double operator()(const MlpDescriptor& part) const { return 2.0 * part.hidden; }
  double operator()(const ExpertsDescriptor& part) const {
    return 2.0 * part.hidden * part.router.rule.experts;
  }
  double operator()(const ParallelFeedForwardDescriptor& part) const {
    return (*this)(part.experts);
  }

 private:
  static constexpr double padding = 16;  // of a recurrent state's rows
};

/// Loading multiplies sizes as `int`s, so what they lead to has to fit.
Descriptor checked(Descriptor descriptor, const std::string& path) {
  for (std::size_t i = 0; i < descriptor.layers.size(); ++i) {
    const LayerDescriptor& layer = descriptor.layers[i];
    const double inputs = layer.layer_input ? 1.0 * layer.layer_input->size *
                                                  static_cast<double>(descriptor.layers.size())
                                            : 0;
    const double largest = std::max({std::visit(LargestCount(), layer.mixer),
                                     std::visit(LargestCount(), layer.feed_forward), inputs});
    if (!(largest <= std::numeric_limits<int>::max())) {
      throw base::LoadError(path + ": the sizes of layer " + std::to_string(i) +
                            " are larger than a model can have.");
    }
  }
  return descriptor;
}

}  // namespace

bool is_encoder(std::string_view model_type) {
  constexpr std::array<std::string_view, 5> encoders = {"bert", "modernbert", "nomic_bert",
                                                        "roberta", "xlm-roberta"};
  return std::ranges::find(encoders, model_type) != encoders.end();
}

Descriptor describe_model(ConfigReader& config) {
  const std::string name = config.string("model_type");
  const auto* family = std::ranges::find(families, name, &Family::model_type);
  if (family == families.end() || family->from_config == nullptr) {
    fail_unknown(config.path(), "the model type", name, &Family::model_type);
  }
  Descriptor descriptor = family->from_config(config);
  config.ignore("dtype");
  config.ignore("torch_dtype");
  read_spare_keys(config, name);
  config.check_all_read();
  return checked(std::move(descriptor), config.path());
}

Descriptor describe_model(const GgufReader& file) {
  const auto* family = std::ranges::find(families, file.architecture(), &Family::architecture);
  if (family == families.end() || family->from_gguf == nullptr) {
    fail_unknown(file.path(), "the architecture", file.architecture(), &Family::architecture);
  }
  Descriptor descriptor = family->from_gguf(file);
  file.check_all_read();
  return checked(std::move(descriptor), file.path());
}

}  // namespace espalier::models
