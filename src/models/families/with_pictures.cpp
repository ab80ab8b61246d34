#include <algorithm>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/recurrent.h"

// The text models inside those that see. A token of text has one position in all of a picture's
// axes, so their RoPE is the usual one.
namespace espalier::models {
namespace {

void set_default_head_dim(ConfigReader& config) {
  if (!config.contains("head_dim")) {
    const int heads = std::max(1, config.integer("num_attention_heads"));
    config.set_defaults({{"head_dim", config.integer("hidden_size") / heads}});
  }
}

}  // namespace

// Qwen2-VL and Qwen2.5-VL, in files of transformers 4 beside the settings of what sees.
Descriptor read_qwen2_vl(ConfigReader& config) {
  config.set_defaults({{"rope_theta", 1e6}});
  config.ignore_all("vision_config");
  ignore_keys(config, {"image_token_id", "video_token_id", "vision_end_token_id",
                       "vision_start_token_id", "vision_token_id"});
  return read_qwen2(config);
}

Descriptor read_qwen3_vl(ConfigReader& config) {
  config.set_defaults({{"rope_theta", 500000}});
  return read_qwen3(config);
}

// The weights of chosen experts always have the sum 1.
Descriptor read_qwen3_vl_moe(ConfigReader& config) {
  set_default_head_dim(config);
  config.set_defaults({{"rope_theta", 500000}});
  config.replace("norm_topk_prob", true);
  return read_qwen3_moe(config);
}

// Qwen3-Omni's thinker.
Descriptor read_qwen3_omni_moe(ConfigReader& config) {
  set_default_head_dim(config);
  config.set_defaults({{"rope_theta", 1e6}, {"norm_topk_prob", true}});
  config.require_off("shared_expert_intermediate_size");
  return read_qwen3_moe(config);
}

// GLM-4.1V: GLM-4-0414 with biases.
Descriptor read_glm4v(ConfigReader& config) {
  config.replace("attention_bias", true);
  config.set_defaults({{"partial_rotary_factor", 1}});
  return read_glm4(config);
}

// GLM-4.5V: GLM 4.5 without norms of heads.
Descriptor read_glm4v_moe(ConfigReader& config) {
  config.set_defaults({{"attention_bias", true}});
  config.replace("use_qk_norm", false);
  return read_glm4_moe(config);
}

}  // namespace espalier::models
