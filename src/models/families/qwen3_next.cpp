#include <algorithm>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/gguf_settings.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

/// Gated DeltaNet with one layer of gated attention in four.
Descriptor gated_delta_decoder(ConfigReader& config, const std::vector<std::string>& projections) {
  config.set_defaults({{"head_dim", 256}, {"partial_rotary_factor", 0.25}});
  Descriptor decoder = dense_decoder(config);
  NormDescriptor norm = rms_norm(config);
  norm.weight_offset = 1.0F;
  set_pre_norms(decoder, norm);
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  const GatedDeltaDescriptor mixer{.key_heads = config.integer("linear_num_key_heads", 16),
                                   .key_dim = config.integer("linear_key_head_dim", 128),
                                   .value_heads = config.integer("linear_num_value_heads", 32),
                                   .value_dim = config.integer("linear_value_head_dim", 128),
                                   .taps = config.integer("linear_conv_kernel_dim", 4),
                                   .activation = recurrent_activation(config, "hidden_act"),
                                   .norm_eps = norm.eps,
                                   .projections = projections,
                                   .by_key_head = projections.size() == 2,
                                   .convolutions = {"conv1d"},
                                   .norm = "norm",
                                   .output = "out_proj"};
  if (mixer.key_heads < 1 || mixer.value_heads % mixer.key_heads != 0) {
    config.fail("linear_num_value_heads", "is not a multiple of linear_num_key_heads");
  }
  const std::vector<std::string> kinds =
      layer_kinds(config, "layer_types", {"linear_attention", "full_attention"});
  const auto interval =
      static_cast<std::size_t>(std::max(1, config.integer("full_attention_interval", 4)));
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    LayerDescriptor& layer = decoder.layers[i];
    if (kinds.empty() ? (i + 1) % interval == 0 : kinds[i] == "full_attention") {
      layer.attention().qk_norm = QkNormDescriptor{.norm = norm};
      layer.attention().output_gate =
          OutputGateDescriptor{.place = OutputGateDescriptor::Place::in_query};
    } else {
      layer.mixer = RecurrentDescriptor(mixer);
    }
  }
  decoder.names.recurrent = "linear_attn.";
  config.require_off("use_sliding_window");
  ignore_keys(config, {"attn_output_gate", "mamba_ssm_dtype", "mtp_num_hidden_layers",
                       "mtp_use_dedicated_embeddings"});
  return decoder;
}

/// Experts beside a gated part for every token, in the layers that `routes` says.
template <class Routes>
void set_experts(Descriptor& decoder, const ConfigReader& config, bool normalize,
                 const Routes& routes) {
  const layers::Activation activation = read_activation(config, "hidden_act");
  const ExpertsDescriptor experts{
      .router = {.rule = {.experts = config.integer("num_experts", 512),
                          .chosen = config.integer("num_experts_per_tok", 10),
                          .normalize = normalize}},
      .hidden = config.integer("moe_intermediate_size", 512),
      .activation = activation,
      .shared = MlpDescriptor{.hidden = config.integer("shared_expert_intermediate_size", 512),
                              .activation = activation},
      .shared_gate = true};
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    if (routes(i)) {
      decoder.layers[i].feed_forward = experts;
    }
  }
  ExpertNames& names = decoder.names.experts;
  names.router = "mlp.gate";
  names.input = {"mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj"};
  names.down = "mlp.experts.{}.down_proj";
  names.shared_input = {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"};
  names.shared_down = "mlp.shared_expert.down_proj";
  names.shared_gate = "mlp.shared_expert_gate";
  ignore_keys(config, {"output_router_logits", "router_aux_loss_coef"});
}

}  // namespace

Descriptor read_qwen3_next(ConfigReader& config) {
  config.set_defaults({{"intermediate_size", 5632}});
  Descriptor decoder = gated_delta_decoder(config, {"in_proj_qkvz", "in_proj_ba"});
  const std::vector<int> dense = config.integers("mlp_only_layers");
  const auto step = static_cast<std::size_t>(std::max(1, config.integer("decoder_sparse_step", 1)));
  set_experts(decoder, config, config.boolean("norm_topk_prob", true), [&](std::size_t i) {
    return (i + 1) % step == 0 && std::ranges::find(dense, static_cast<int>(i)) == dense.end();
  });
  return decoder;
}

Descriptor read_qwen3_5(ConfigReader& config) {
  return gated_delta_decoder(config, {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"});
}

Descriptor read_qwen3_5_moe(ConfigReader& config) {
  // Experts have taken the place of every dense part.
  config.set_defaults({{"intermediate_size", 0}});
  Descriptor decoder = read_qwen3_5(config);
  set_experts(decoder, config, true, [](std::size_t) { return true; });
  return decoder;
}

Descriptor read_qwen3_next(const GgufReader& file) {
  const int head_dim = file.integer("attention.key_length");
  const int value_heads = file.integer("ssm.time_step_rank");
  const int inner = file.integer("ssm.inner_size");
  ConfigReader config = gguf_settings(
      file, "qwen3_next",
      {{"linear_conv_kernel_dim", file.integer("ssm.conv_kernel")},
       {"linear_key_head_dim", file.integer("ssm.state_size")},
       {"linear_num_key_heads", file.integer("ssm.group_count")},
       {"linear_num_value_heads", value_heads},
       {"linear_value_head_dim", value_heads > 0 ? inner / value_heads : 0},
       {"partial_rotary_factor",
        static_cast<double>(file.integer("rope.dimension_count", head_dim / 4)) / head_dim}});
  Descriptor decoder = read_qwen3_next(config);
  use_gguf_tensors(decoder);
  decoder.names.mlp_norm = "post_attention_norm";
  decoder.names.recurrent_renamed = gguf_mamba_names();
  // The file's norm weights have the one added, and its projections lie in another order.
  decoder.final_norm.weight_offset = 0;
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention_norm->weight_offset = 0;
    layer.mlp_norm->weight_offset = 0;
    if (auto* attention = std::get_if<AttentionDescriptor>(&layer.mixer)) {
      attention->qk_norm->norm.weight_offset = 0;
      continue;
    }
    auto& mixer = std::get<GatedDeltaDescriptor>(std::get<RecurrentDescriptor>(layer.mixer));
    mixer.projections = {"attn_qkv", "attn_gate", "ssm_ba"};
    mixer.by_key_head = false;
    mixer.rates_by_key_head = true;
  }
  config.check_all_read();
  return decoder;
}

}  // namespace espalier::models
