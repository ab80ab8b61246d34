#include <cmath>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

/// The heads' decay rates fall geometrically, as ALiBi's slopes do, and from layer to layer.
std::vector<float> decay_rates(int heads, std::size_t layer, std::size_t layers) {
  const double base = std::pow(2.0, -8.0 / heads);
  const double factor =
      1 - static_cast<double>(layer) / (static_cast<double>(layers) - 1 + 1e-5) + 1e-5;
  std::vector<float> rates;
  for (int head = 1; head <= heads; ++head) {
    rates.push_back(static_cast<float>(std::pow(base, head) * factor));
  }
  return rates;
}

float factor(const ConfigReader& config, const std::string& part, const std::string& which) {
  return static_cast<float>(config.number(part + "_" + which + "_factor", 1));
}

}  // namespace

// MiniMax-01: lightning attention with softmax attention now and then, and experts everywhere.
Descriptor read_minimax(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config, {}, 1e6));
  const layers::Activation activation = recurrent_activation(config, "hidden_act");
  const std::vector<std::string> kinds =
      layer_kinds(config, "layer_types", {"linear_attention", "full_attention"});
  const ExpertsDescriptor experts{
      .router = {.rule = {.experts = config.integer("num_local_experts", 8),
                          .chosen = config.integer("num_experts_per_tok", 2),
                          .normalize = true}},
      .hidden = config.integer("intermediate_size"),
      .activation = activation};
  const int window = config.integer("sliding_window", 0);
  const std::size_t count = decoder.layers.size();
  for (std::size_t i = 0; i < count; ++i) {
    LayerDescriptor& layer = decoder.layers[i];
    const bool linear = kinds.empty() ? i % 2 != 0 : kinds[i] == "linear_attention";
    const std::string part = linear ? "linear_attn" : "full_attn";
    layer.mixer_scale = factor(config, part, "beta");
    layer.mlp_scale = factor(config, "mlp", "beta");
    layer.normed_residual = NormedResidualDescriptor{.mixer_factor = factor(config, part, "alpha"),
                                                     .mlp_factor = factor(config, "mlp", "alpha")};
    layer.feed_forward = experts;
    layer.attention().window = window;
    if (linear) {
      const AttentionDescriptor attention = layer.attention();
      layer.mixer = RecurrentDescriptor(
          LightningDescriptor{.heads = attention.heads,
                              .head_dim = attention.head_dim,
                              .norm_eps = 1e-6F,
                              .activation = activation,
                              .decay_rates = decay_rates(attention.heads, i, count)});
    }
  }
  decoder.names.recurrent = "self_attn.";
  decoder.names.experts.router = "block_sparse_moe.gate";
  decoder.names.experts.input = {"block_sparse_moe.experts.{}.w1",
                                 "block_sparse_moe.experts.{}.w3"};
  decoder.names.experts.down = "block_sparse_moe.experts.{}.w2";
  ignore_keys(config, {"block_size", "output_router_logits", "router_aux_loss_coef",
                       "router_jitter_noise", "linear_attn_alpha_factor", "linear_attn_beta_factor",
                       "full_attn_alpha_factor", "full_attn_beta_factor"});
  return decoder;
}

}  // namespace espalier::models
