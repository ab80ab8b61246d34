#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/families/dense.h"
#include "models/families/experts.h"
#include "models/families/families.h"

namespace espalier::models {
namespace {

/// The layers of MiMo-V2-Flash that slide: by type, by the original's list of ones for them, or all
/// but the first and each sixth.
std::vector<bool> mimo_sliding_layers(const ConfigReader& config, std::size_t layers) {
  const std::vector<int> pattern = config.integers("hybrid_layer_pattern");
  if (config.contains("layer_types")) {
    return sliding_layers(config, 0);
  }
  std::vector<bool> sliding = every_nth_full(layers, 6);
  sliding.front() = false;
  if (!pattern.empty() && pattern.size() != layers) {
    config.fail("hybrid_layer_pattern", "has another number of entries than there are layers");
  }
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    sliding[i] = pattern[i] != 0;
  }
  return sliding;
}

/// The layers with experts: by type, by the original's list of ones for them, or all but the first.
std::vector<bool> mimo_sparse_layers(const ConfigReader& config, std::size_t layers) {
  const std::vector<int> pattern = config.integers("moe_layer_freq");
  if (config.contains("mlp_layer_types") || pattern.empty()) {
    return sparse_layers(config, layers, 1);
  }
  if (pattern.size() != layers) {
    config.fail("moe_layer_freq", "has another number of entries than there are layers");
  }
  std::vector<bool> sparse(layers);
  std::transform(pattern.begin(), pattern.end(), sparse.begin(), [](int one) { return one != 0; });
  return sparse;
}

/// Sizes that the original states for sliding layers by themselves: the same but for the key-value
/// heads, which are twice as many whatever a converted file says.
void check_mimo_sizes(const ConfigReader& config) {
  for (const auto& [sliding, full] :
       {std::pair{"swa_head_dim", "head_dim"}, std::pair{"swa_v_head_dim", "v_head_dim"},
        std::pair{"swa_num_attention_heads", "num_attention_heads"}}) {
    if (config.integer(sliding, config.integer(full)) != config.integer(full)) {
      config.fail(sliding, std::string("differs from '") + full + "', which is not supported");
    }
  }
  const int kv_heads = config.integer("num_key_value_heads");
  const int stated = config.integer("swa_num_key_value_heads", kv_heads);
  if (stated != kv_heads && stated != 2 * kv_heads) {
    config.fail("swa_num_key_value_heads",
                "is neither 'num_key_value_heads' nor twice that, which is not supported");
  }
}

}  // namespace

// MiMo-V2-Flash: sliding layers with sinks and twice the key-value heads, values shorter than keys.
Descriptor read_mimo_v2_flash(ConfigReader& config) {
  config.set_defaults({{"head_dim", 192}, {"v_head_dim", 128}, {"partial_rotary_factor", 0.334}});
  // The first two say the window again, the last what the pattern says.
  for (const char* key : {"attention_chunk_size", "sliding_window_size", "hybrid_block_size"}) {
    config.ignore(key);
  }
  config.require_off("add_full_attention_sink_bias");
  check_mimo_sizes(config);
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_windows(decoder, mimo_sliding_layers(config, decoder.layers.size()),
              config.integer("sliding_window", 128));
  const bool bias = config.boolean("attention_bias", false);
  const bool sinks = config.boolean("add_swa_attention_sink_bias", true);
  const int head_dim = config.integer("head_dim");
  const double sliding_theta = config.number("swa_rope_theta", 10000);
  const RopeSettings full_rope =
      read_rope(config, "full_attention", config.number("rope_theta", 5000000));
  RopeSettings sliding_rope = read_rope(config, "sliding_attention", sliding_theta);
  if (!config.contains("rope_parameters")) {
    sliding_rope.theta = sliding_theta;
  }
  decoder.names.sinks = "self_attn.attention_sink_bias";
  for (LayerDescriptor& layer : decoder.layers) {
    AttentionDescriptor& attention = layer.attention();
    const bool slides = attention.window > 0;
    attention.kv_heads *= slides ? 2 : 1;
    attention.sinks = slides && sinks;
    attention.value_dim = config.integer("v_head_dim");
    attention.value_scale = static_cast<float>(config.number("attention_value_scale", 0.707));
    attention.qkv_bias = bias;
    const RopeSettings& rope = slides ? sliding_rope : full_rope;
    attention.rope = make_rope(rope, rotated_dims(rope, head_dim));
  }
  const ExpertsDescriptor experts = deepseek_experts(config, decoder);
  set_experts(decoder, experts, mimo_sparse_layers(config, decoder.layers.size()));
  return decoder;
}

}  // namespace espalier::models
