#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

namespace espalier::models {
namespace {

void set_limit(Descriptor& decoder, const ConfigReader& config) {
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_limit = static_cast<float>(config.number("clip_qkv", 0));
  }
}

}  // namespace

// OLMo 1: layer norms without anything learned.
Descriptor read_olmo(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, {.kind = NormDescriptor::Kind::layer, .eps = 1e-5F, .weight = false});
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  set_limit(decoder, config);
  return decoder;
}

// OLMo 2 and 3: norms after the parts instead of before, and over all heads of q and k together;
// OLMo 3 has sliding layers, whose RoPE is never scaled.
Descriptor read_olmo2(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  const NormDescriptor norm = rms_norm(config);
  set_post_norms_only(decoder, norm);
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  const bool slides = config.contains("sliding_window");
  set_windows(decoder, sliding_layers(config, slides ? 4 : 0), config.integer("sliding_window", 0));

  const RopeSettings full_rope = read_rope(config, "full_attention");
  RopeSettings local_rope{.theta = full_rope.theta};
  if (slides && config.contains("rope_parameters")) {
    local_rope = read_rope(config, "sliding_attention");
  }
  const int head_dim = decoder.layers.front().attention().head_dim;
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().rope =
        make_rope(layer.attention().window > 0 ? local_rope : full_rope, head_dim);
    layer.attention().qk_norm =
        QkNormDescriptor{.scope = QkNormDescriptor::Scope::projection, .norm = norm};
  }
  return decoder;
}

// OLMoE: norms over all heads of q and k together.
Descriptor read_olmoe(ConfigReader& config) {
  Descriptor decoder = read_llama(config);
  set_limit(decoder, config);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qk_norm =
        QkNormDescriptor{.scope = QkNormDescriptor::Scope::projection, .norm = decoder.final_norm};
  }
  ExpertsDescriptor experts = softmax_experts(config, "intermediate_size");
  experts.router.rule.normalize = config.boolean("norm_topk_prob", false);
  decoder.names.experts = expert_names("mlp");
  set_experts(decoder, experts);
  return decoder;
}

Descriptor read_olmoe(const GgufReader& file) {
  Descriptor decoder = dense_decoder(file);
  set_pre_norms(decoder, rms_norm(file));
  set_rope(decoder, read_rope(file, decoder.layers.front().attention().head_dim));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qk_norm =
        QkNormDescriptor{.scope = QkNormDescriptor::Scope::projection, .norm = decoder.final_norm};
  }
  read_experts(file, decoder, false);
  return decoder;
}

// FlexOlmo: OLMo 2 with a mixture of experts.
Descriptor read_flex_olmo(ConfigReader& config) {
  Descriptor decoder = read_olmo2(config);
  ExpertsDescriptor experts = softmax_experts(config, "intermediate_size");
  experts.router.rule.normalize = config.boolean("norm_topk_prob", false);
  decoder.names.experts = expert_names("mlp");
  set_experts(decoder, experts);
  return decoder;
}

}  // namespace espalier::models
