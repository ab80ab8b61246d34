#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"
#include "models/families/gguf_settings.h"

namespace espalier::models {

// Trinity (AFMoE): gated attention, q and k norms, norms around both parts; full layers have no
// positions.
Descriptor read_afmoe(ConfigReader& config) {
  config.set_defaults({{"head_dim", 128}, {"num_experts_per_tok", 6}});
  Descriptor decoder = dense_decoder(config);
  const NormDescriptor norm = rms_norm(config);
  set_pre_norms(decoder, norm);
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  set_windows(decoder, sliding_layers(config, config.integer("global_attn_every_n_layers", 4)),
              config.integer("sliding_window", 1024));
  if (config.boolean("mup_enabled", false)) {
    decoder.embedding_scale = std::sqrt(static_cast<float>(decoder.width));
  }
  ExpertsDescriptor experts = deepseek_experts(config, decoder);
  experts.router.rule.scale = static_cast<float>(config.number("route_scale", 1));
  decoder.names.experts.router = "mlp.router.gate";
  decoder.names.experts.correction_bias = "mlp.expert_bias";
  decoder.names.output_gate = "self_attn.gate_proj";
  decoder.names.mlp_norm = "pre_mlp_layernorm";
  decoder.names.mlp_post_norm = "post_mlp_layernorm";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention_post_norm = norm;
    layer.mlp_post_norm = norm;
    layer.attention().qk_norm = QkNormDescriptor{.norm = norm};
    layer.attention().output_gate = OutputGateDescriptor{};
    if (layer.attention().window == 0) {
      layer.attention().rope.reset();
    }
  }
  set_experts(decoder, experts, config.integer("num_dense_layers", 1));
  return decoder;
}

// gpt-oss: attention sinks, every second layer sliding, biases everywhere, clamped experts.
Descriptor read_gpt_oss(ConfigReader& config) {
  config.set_defaults({{"head_dim", 64}, {"attention_bias", true}});
  if (!config.contains("rope_parameters") && !config.contains("rope_theta")) {
    config.set_defaults({{"rope_scaling",
                          {{"rope_type", "yarn"},
                           {"factor", 32.0},
                           {"beta_fast", 32.0},
                           {"beta_slow", 1.0},
                           {"truncate", false},
                           {"original_max_position_embeddings", 4096}}}});
  }
  for (const auto& [key, built_in] :
       {std::pair("swiglu_alpha", 1.702), std::pair("swiglu_limit", 7.0)}) {
    if (config.number(key, built_in) != built_in) {
      config.fail(key, "differs from gpt-oss's own, which is not supported");
    }
  }
  config.ignore("initial_context_length");
  config.ignore("experts_per_token");
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config, {}, 150000));
  set_attention_bias(decoder, config.boolean("attention_bias"));
  std::vector<bool> alternating(decoder.layers.size());
  for (std::size_t i = 0; i < alternating.size(); i += 2) {
    alternating[i] = true;
  }
  set_windows(decoder, config.contains("layer_types") ? sliding_layers(config, 0) : alternating,
              config.integer("sliding_window", 128));
  decoder.names.sinks = "self_attn.sinks";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().sinks = true;
  }
  config.set_defaults({{"num_experts_per_tok", 4}});
  ExpertsDescriptor experts = softmax_experts(config, "intermediate_size");
  experts.router.rule.normalize = true;
  experts.router.bias = true;
  experts.bias = true;
  experts.activation = layers::Activation::clamped_swish;
  experts.layout = ExpertsDescriptor::Layout::transposed;
  experts.gate_up = ExpertsDescriptor::GateUp::alternating;
  decoder.names.experts.router = "mlp.router";
  decoder.names.experts.input = {"mlp.experts.gate_up_proj"};
  decoder.names.experts.down = "mlp.experts.down_proj";
  decoder.names.experts.suffix = "";
  decoder.names.experts.bias_suffix = "_bias";
  set_experts(decoder, experts);
  return decoder;
}

Descriptor read_gpt_oss(const GgufReader& file) {
  const int hidden = file.integer("expert_feed_forward_length");
  ConfigReader config = gguf_settings(file, "gpt_oss", {{"intermediate_size", hidden}});
  config.ignore("moe_intermediate_size");
  Descriptor decoder = read_gpt_oss(config);
  RopeSettings rope = read_rope(config, {}, 150000);
  if (auto* yarn = std::get_if<YarnRope>(&rope.scaling)) {
    yarn->truncate = false;  // which GGUF cannot say
    set_rope(decoder, rope);
  }
  use_gguf_tensors(decoder);
  decoder.names.sinks = "attn_sinks.weight";
  decoder.names.mlp_norm = "post_attention_norm";
  config.check_all_read();
  return decoder;
}

}  // namespace espalier::models
