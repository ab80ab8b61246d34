#include <algorithm>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/gguf_settings.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

/// Which layers attend; the others convolve.
std::vector<bool> attending_layers(const ConfigReader& config, std::size_t layers) {
  std::vector<bool> attends(layers, true);
  const std::vector<std::string> kinds =
      layer_kinds(config, "layer_types", {"conv", "full_attention"});
  const std::vector<int> indices = config.integers("full_attn_idxs");
  for (std::size_t i = 0; i < layers; ++i) {
    if (!kinds.empty()) {
      attends[i] = kinds[i] == "full_attention";
    } else if (!indices.empty()) {
      attends[i] = std::ranges::find(indices, static_cast<int>(i)) != indices.end();
    }
  }
  return attends;
}

Descriptor lfm2_decoder(ConfigReader& config) {
  config.set_defaults(
      {{"tie_word_embeddings", config.boolean("tie_embedding", true)}, {"rope_theta", 1e6}});
  if (config.contains("block_ff_dim")) {
    config.set_defaults({{"intermediate_size", config.integer("block_ff_dim")}});
  }
  Descriptor decoder = dense_decoder(config);
  const NormDescriptor norm = rms_norm(config, "norm_eps");
  set_pre_norms(decoder, norm);
  set_rope(decoder, read_rope(config));
  TensorNames& names = decoder.names;
  names.final_norm = "model.embedding_norm";
  names.attention_norm = "operator_norm";
  names.mlp_norm = "ffn_norm";
  names.attention_output = "self_attn.out_proj";
  names.q_norm = "self_attn.q_layernorm";
  names.k_norm = "self_attn.k_layernorm";
  names.mlp_input = {"feed_forward.w1", "feed_forward.w3"};
  names.mlp_down = "feed_forward.w2";
  names.recurrent = "conv.";
  const ShortConvolutionDescriptor convolution{
      .channels = decoder.width,
      .convolution = {.taps = config.integer("conv_L_cache", 3),
                      .bias = config.boolean("conv_bias", false)}};
  const std::vector<bool> attends = attending_layers(config, decoder.layers.size());
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    if (attends[i]) {
      decoder.layers[i].attention().qk_norm = QkNormDescriptor{.norm = norm};
    } else {
      decoder.layers[i].mixer = RecurrentDescriptor(convolution);
    }
  }
  // Older spellings of what other keys say.
  ignore_keys(config,
              {"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
               "block_use_swiglu", "block_use_xavier_init", "conv_dim", "conv_dim_out",
               "conv_use_xavier_init", "num_heads", "use_pos_enc", "theta"});
  return decoder;
}

/// LFM2 gives the feed-forward part's width before a factor of two thirds and rounding.
int adjusted_width(const ConfigReader& config, int width) {
  const double factor = config.number("block_ffn_dim_multiplier", 1.0);
  const int multiple = config.integer("block_multiple_of", 256);
  if (!config.boolean("block_auto_adjust_ff_dim", true) || multiple < 1) {
    return width;
  }
  const int reduced = config.size("block_ffn_dim_multiplier", factor * (2 * width / 3));
  return (reduced + multiple - 1) / multiple * multiple;
}

}  // namespace

// Short convolutions with attention in a few layers.
Descriptor read_lfm2(ConfigReader& config) {
  Descriptor decoder = lfm2_decoder(config);
  const int width = config.integer("block_ff_dim", config.integer("intermediate_size"));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.mlp().hidden = adjusted_width(config, width);
  }
  return decoder;
}

// The same with experts behind the first layers.
Descriptor read_lfm2_moe(ConfigReader& config) {
  Descriptor decoder = lfm2_decoder(config);
  const ExpertsDescriptor experts{
      .router = {.rule = {.experts = config.integer("num_experts", 32),
                          .chosen = config.integer("num_experts_per_tok", 4),
                          .score = layers::RouterRule::Score::sigmoid,
                          .normalize = config.boolean("norm_topk_prob", true),
                          .added_to_sum = 1e-6F,
                          .scale = static_cast<float>(config.number("routed_scaling_factor", 1))},
                 .correction_bias = config.boolean("use_expert_bias", true)},
      .hidden = config.integer("moe_intermediate_size", 1792)};
  const auto dense = static_cast<std::size_t>(config.integer("num_dense_layers", 2));
  for (std::size_t i = dense; i < decoder.layers.size(); ++i) {
    decoder.layers[i].feed_forward = experts;
  }
  decoder.names.experts.router = "feed_forward.gate";
  decoder.names.experts.correction_bias = "feed_forward.expert_bias";
  decoder.names.experts.input = {"feed_forward.experts.{}.w1", "feed_forward.experts.{}.w3"};
  decoder.names.experts.down = "feed_forward.experts.{}.w2";
  return decoder;
}

namespace {

nlohmann::json lfm2_settings(const GgufReader& file) {
  nlohmann::json kinds = nlohmann::json::array();
  for (const bool attends : gguf_attending_layers(file)) {
    kinds.push_back(attends ? "full_attention" : "conv");
  }
  return {{"layer_types", kinds},
          {"conv_L_cache", file.integer("shortconv.l_cache")},
          {"block_auto_adjust_ff_dim", false},
          {"norm_eps", file.number("attention.layer_norm_rms_epsilon")}};
}

/// GGUF's metadata; LFM2's configuration names neither the norms' epsilon so nor an activation.
ConfigReader lfm2_config(const GgufReader& file, const std::string& model_type,
                         const nlohmann::json& settings) {
  return gguf_settings(file, model_type, settings, {"rms_norm_eps", "hidden_act"});
}

void use_gguf_lfm2_tensors(Descriptor& decoder, const GgufReader& file) {
  use_gguf_tensors(decoder);
  if (!file.has_tensor("output_norm.weight")) {
    decoder.names.final_norm = "token_embd_norm";
  }
  decoder.names.recurrent_renamed = {{"in_proj", "shortconv.in_proj"},
                                     {"conv", "shortconv.conv"},
                                     {"out_proj", "shortconv.out_proj"}};
}

}  // namespace

Descriptor read_lfm2(const GgufReader& file) {
  ConfigReader config = lfm2_config(file, "lfm2", lfm2_settings(file));
  Descriptor decoder = read_lfm2(config);
  use_gguf_lfm2_tensors(decoder, file);
  config.check_all_read();
  return decoder;
}

Descriptor read_lfm2_moe(const GgufReader& file) {
  constexpr int sigmoid = 2;
  nlohmann::json settings = lfm2_settings(file);
  settings["num_dense_layers"] = file.integer("leading_dense_block_count");
  settings["use_expert_bias"] = file.any_layer_has("exp_probs_b.bias");
  if (file.integer("expert_gating_func", sigmoid) != sigmoid) {
    file.fail("expert_gating_func", "is not the sigmoid");
  }
  ConfigReader config = lfm2_config(file, "lfm2_moe", settings);
  for (const char* key : {"first_k_dense_replace", "block_auto_adjust_ff_dim"}) {
    config.ignore(key);
  }
  Descriptor decoder = read_lfm2_moe(config);
  use_gguf_lfm2_tensors(decoder, file);
  config.check_all_read();
  return decoder;
}

}  // namespace espalier::models
