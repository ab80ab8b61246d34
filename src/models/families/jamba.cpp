#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

/// What stands in every `period`-th layer, from layer `offset` on.
struct Interleaving {
  int period;
  int offset;

  bool at(std::size_t layer) const {
    return layer % static_cast<std::size_t>(period) == static_cast<std::size_t>(offset);
  }
};

Interleaving read_interleaving(const ConfigReader& config, const std::string& prefix,
                               const Interleaving& fallback) {
  const Interleaving result{.period = config.integer(prefix + "_layer_period", fallback.period),
                            .offset = config.integer(prefix + "_layer_offset", fallback.offset)};
  if (result.period < 1) {
    config.fail(prefix + "_layer_period", "must be at least 1");
  }
  return result;
}

void set_jamba_names(TensorNames& names) {
  names.final_norm = "model.final_layernorm";
  names.mlp_norm = "pre_ff_layernorm";
  names.mlp_input = {"feed_forward.gate_proj", "feed_forward.up_proj"};
  names.mlp_down = "feed_forward.down_proj";
  names.recurrent = "mamba.";
  names.experts.router = "feed_forward.router";
  names.experts.input = {"feed_forward.experts.{}.gate_proj", "feed_forward.experts.{}.up_proj"};
  names.experts.down = "feed_forward.experts.{}.down_proj";
}

}  // namespace

// Mamba with a layer of attention without positions, and a mixture of experts, now and then.
Descriptor read_jamba(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_jamba_names(decoder.names);
  const MambaDescriptor mamba{
      .channels = config.product("mamba_expand", config.integer("mamba_expand", 2), decoder.width),
      .states = config.integer("mamba_d_state", 16),
      .time_rank = integer_or_auto(config, "mamba_dt_rank", (decoder.width + 15) / 16),
      .convolution = {.taps = config.integer("mamba_d_conv", 4),
                      .bias = config.boolean("mamba_conv_bias", true),
                      .activation = recurrent_activation(config, "hidden_act")},
      .bias = config.boolean("mamba_proj_bias", false),
      .parameter_norms =
          MambaDescriptor::ParameterNorms{.eps = decoder.final_norm.eps, .weights = true}};
  const Interleaving attends = read_interleaving(config, "attn", {.period = 8, .offset = 4});
  const Interleaving routes = read_interleaving(config, "expert", {.period = 2, .offset = 1});
  const int experts = config.integer("num_experts", 16);
  const int chosen = config.integer("num_experts_per_tok", 2);
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    LayerDescriptor& layer = decoder.layers[i];
    if (!attends.at(i)) {
      layer.mixer = RecurrentDescriptor(mamba);
    }
    if (routes.at(i) && experts > 1) {
      layer.feed_forward =
          ExpertsDescriptor{.router = {.rule = {.experts = experts, .chosen = chosen}},
                            .hidden = layer.mlp().hidden,
                            .activation = layer.mlp().activation};
    }
  }
  ignore_keys(config, {"use_mamba_kernels", "use_mambapy", "use_associative_scan",
                       "output_router_logits", "router_aux_loss_coef", "num_logits_to_keep"});
  config.require_off("sliding_window");
  return decoder;
}

}  // namespace espalier::models
