#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

namespace espalier::models {
namespace {

/// Llama's layout with DeepSeek-V3's mixture of experts from some layer on.
Descriptor llama_with_experts(ConfigReader& config, int default_first_sparse) {
  Descriptor decoder = read_llama(config);
  const ExpertsDescriptor experts = deepseek_experts(config, decoder);
  set_experts(decoder, experts, sparse_layers(config, decoder.layers.size(), default_first_sparse));
  return decoder;
}

}  // namespace

// dots.llm1
Descriptor read_dots1(ConfigReader& config) {
  config.set_defaults({{"norm_topk_prob", false}});
  Descriptor decoder = llama_with_experts(config, 0);
  set_qk_norm(decoder);
  set_windows(decoder, sliding_layers(config, 0), config.integer("sliding_window", 0));
  return decoder;
}

Descriptor read_dots1(const GgufReader& file) {
  Descriptor decoder = read_qwen3(file);
  read_experts(file, decoder, false);
  return decoder;
}

// GLM 4.5 and 4.6, and Air: half of each head rotated, biases for q, k and v alone.
Descriptor read_glm4_moe(ConfigReader& config) {
  config.set_defaults({{"partial_rotary_factor", 0.5}});
  Descriptor decoder = llama_with_experts(config, 1);
  set_attention_bias(decoder, false);
  if (config.boolean("use_qk_norm", false)) {
    set_qk_norm(decoder);
  }
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_bias = config.boolean("attention_bias", false);
  }
  return decoder;
}

// Solar Open: biases for q, k and v alone.
Descriptor read_solar_open(ConfigReader& config) {
  Descriptor decoder = llama_with_experts(config, 0);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().output_bias = false;
  }
  return decoder;
}

// K-EXAONE: q and k norms; where layers slide, the full ones have no positions.
Descriptor read_exaone_moe(ConfigReader& config) {
  config.set_defaults({{"routed_scaling_factor", 2.5}});
  Descriptor decoder = llama_with_experts(config, 1);
  decoder.names.experts.correction_bias = "mlp.e_score_correction_bias";
  set_qk_norm(decoder);
  const bool slides = config.contains("sliding_window");
  const int pattern = slides ? config.integer("sliding_window_pattern", 4) : 0;
  set_windows(decoder, sliding_layers(config, pattern), config.integer("sliding_window", 0));
  for (LayerDescriptor& layer : decoder.layers) {
    if (slides && layer.attention().window == 0) {
      layer.attention().rope.reset();
    }
  }
  return decoder;
}

// Hunyuan 3: q and k norms.
Descriptor read_hy_v3(ConfigReader& config) {
  config.set_defaults({{"head_dim", 128}});
  config.ignore("enable_moe_fp32_combine");
  Descriptor decoder = read_llama(config);
  set_qk_norm(decoder);
  ExpertsDescriptor experts = deepseek_experts(config, decoder);
  experts.router.rule.normalize = true;
  experts.router.rule.scale = static_cast<float>(config.number("router_scaling_factor", 2.826));
  decoder.names.experts.correction_bias = "mlp.e_score_correction_bias";
  set_experts(decoder, experts, sparse_layers(config, decoder.layers.size(), 1));
  return decoder;
}

}  // namespace espalier::models
