#include <algorithm>
#include <array>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/gguf_settings.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

float multiplier(const ConfigReader& config, std::string_view key) {
  return static_cast<float>(config.number(key, 1));
}

/// A list of `count` multipliers, all 1 when absent.
std::vector<double> multipliers(const ConfigReader& config, std::string_view key,
                                std::size_t count) {
  std::vector<double> values = config.numbers(key);
  if (values.empty()) {
    values.assign(count, 1.0);
  }
  if (values.size() != count) {
    config.fail(key, "must be a list of " + std::to_string(count) + " numbers");
  }
  return values;
}

Mamba2Descriptor read_mixer(const ConfigReader& config, int width) {
  const int channels = config.integer(
      "mamba_d_ssm", config.product("mamba_expand", config.integer("mamba_expand", 2), width));
  Mamba2Descriptor mamba = read_mamba2_part(config, channels);
  mamba.output_bias = config.boolean("projectors_bias", false);
  if (config.boolean("mamba_rms_norm", false)) {
    mamba.output_norm =
        Mamba2Descriptor::OutputNorm{.eps = static_cast<float>(config.number("rms_norm_eps")),
                                     .groups = mamba.groups,
                                     .before_gate = config.boolean("mamba_norm_before_gate", true)};
  }
  config.ignore("mamba_norm_before_gate");
  const float input = multiplier(config, "ssm_in_multiplier");
  mamba.input_bias_scale = 1 / input;
  const std::vector<double> sections =
      multipliers(config, "ssm_multipliers", mamba.input_scales.size());
  std::ranges::transform(sections, mamba.input_scales.begin(),
                         [&](double scale) { return static_cast<float>(scale) * input; });
  return mamba;
}

}  // namespace

// Attention and Mamba 2 side by side in every layer, with a multiplier at every turn.
Descriptor read_falcon_h1(ConfigReader& config) {
  Descriptor decoder = attention_and_mamba2_decoder(config);
  decoder.embedding_scale = multiplier(config, "embedding_multiplier");
  decoder.logit_scale = multiplier(config, "lm_head_multiplier");
  const Mamba2Descriptor mamba = read_mixer(config, decoder.width);
  // Attention's input is multiplied: so are queries, keys and values, but for their biases.
  const float input = multiplier(config, "attention_in_multiplier");
  const std::vector<double> mlp = multipliers(config, "mlp_multipliers", 2);
  for (LayerDescriptor& layer : decoder.layers) {
    AttentionDescriptor attention = layer.attention();
    attention.bias_scale = 1 / input;
    attention.scale *= input * input * multiplier(config, "key_multiplier");
    layer.mlp().gate_scale = static_cast<float>(mlp[0]);
    layer.mlp_scale = static_cast<float>(mlp[1]);
    layer.mixer = ParallelMixerDescriptor{
        .attention = attention,
        .mamba = mamba,
        .attention_scale = input * multiplier(config, "attention_out_multiplier"),
        .mamba_scale = multiplier(config, "ssm_out_multiplier")};
  }
  ignore_keys(config, {"num_logits_to_keep"});
  return decoder;
}

// The file's weights have the multipliers in them.
Descriptor read_falcon_h1(const GgufReader& file) {
  nlohmann::json settings = gguf_mamba2_settings(file);
  settings.update({{"mamba_d_ssm", file.integer("ssm.inner_size")},
                   {"mamba_rms_norm", file.any_layer_has("ssm_norm.weight")},
                   {"mamba_norm_before_gate", false}});
  ConfigReader config = gguf_settings(file, "falcon_h1", settings);
  Descriptor decoder = read_falcon_h1(config);
  use_gguf_tensors(decoder);
  decoder.names.recurrent_renamed = gguf_mamba_names();
  config.check_all_read();
  return decoder;
}

}  // namespace espalier::models
