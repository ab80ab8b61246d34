#include <limits>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/gguf_settings.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

/// Layers that are a norm and a mixer, nothing else.
Descriptor mamba_decoder(ConfigReader& config, const RecurrentDescriptor& mixer) {
  Descriptor decoder = recurrent_decoder(config);
  const NormDescriptor norm = rms_norm(config, "layer_norm_epsilon");
  decoder.final_norm = norm;
  decoder.layers.assign(static_cast<std::size_t>(config.integer("num_hidden_layers")),
                        {.mixer = mixer, .feed_forward = std::monostate(), .attention_norm = norm});
  decoder.names.embedding = "backbone.embeddings";
  decoder.names.final_norm = "backbone.norm_f";
  decoder.names.head = "lm_head";
  decoder.names.layers = "backbone.layers.";
  decoder.names.attention_norm = "norm";
  decoder.names.recurrent = "mixer.";
  // How weights are drawn, and which kernels compute.
  ignore_keys(config, {"rescale_prenorm_residual",
                       "residual_in_fp32",
                       "time_step_floor",
                       "time_step_init_scheme",
                       "time_step_max",
                       "time_step_min",
                       "time_step_scale",
                       "use_associative_scan",
                       "use_mambapy",
                       "use_falcon_mambapy",
                       "fused_add_norm",
                       "rms_norm",
                       "ssm_cfg",
                       "chunk_size",
                       "num_attention_heads",
                       "num_key_value_heads",
                       "d_inner",
                       "d_model",
                       "n_layer",
                       "num_heads_per_layer",
                       "pad_vocab_size_multiple",
                       "norm_before_gate"});
  return decoder;
}

MambaDescriptor mamba_mixer(const ConfigReader& config) {
  const int width = config.integer("hidden_size");
  const int expanded = config.size("expand", config.number("expand", 2) * width);
  return {.channels = config.integer("intermediate_size", expanded),
          .states = config.integer("state_size", 16),
          .time_rank = integer_or_auto(config, "time_step_rank", (width + 15) / 16),
          .convolution = {.taps = config.integer("conv_kernel", 4),
                          .bias = config.boolean("use_conv_bias", true),
                          .activation = recurrent_activation(config, "hidden_act")},
          .bias = config.boolean("use_bias", false)};
}

}  // namespace

Descriptor read_mamba(ConfigReader& config) { return mamba_decoder(config, mamba_mixer(config)); }

// Mamba with norms without weights on time step, B and C.
Descriptor read_falcon_mamba(ConfigReader& config) {
  MambaDescriptor mixer = mamba_mixer(config);
  mixer.parameter_norms = MambaDescriptor::ParameterNorms{
      .eps = static_cast<float>(config.number("mixer_rms_eps", 1e-6)), .weights = false};
  return mamba_decoder(config, mixer);
}

Descriptor read_mamba2(ConfigReader& config) {
  config.set_defaults({{"tie_word_embeddings", false}});
  const int heads = config.integer("num_heads", 128);
  const int head_dim = config.integer("head_dim", 64);
  const int groups = config.integer("n_groups", 8);
  const double channels = config.number("expand", 2) * config.integer("hidden_size");
  if (static_cast<double>(heads) * head_dim != channels || groups < 1 || heads % groups != 0) {
    config.fail("num_heads", "does not fit the other sizes");
  }
  const std::vector<double> limits = config.numbers("time_step_limit");
  const bool bias = config.boolean("use_bias", false);
  ignore_keys(config, {"intermediate_size", "time_step_rank"});
  return mamba_decoder(
      config,
      Mamba2Descriptor{
          .heads = heads,
          .head_dim = head_dim,
          .groups = groups,
          .states = config.integer("state_size", 128),
          .convolution = {.taps = config.integer("conv_kernel", 4),
                          .bias = config.boolean("use_conv_bias", true),
                          .activation = recurrent_activation(config, "hidden_act")},
          .input_bias = bias,
          .output_bias = bias,
          .least_step = limits.empty() ? 0.0F : static_cast<float>(limits.front()),
          .most_step = limits.empty() ? std::numeric_limits<float>::infinity()
                                      : static_cast<float>(limits.back()),
          .output_norm = Mamba2Descriptor::OutputNorm{
              .eps = static_cast<float>(config.number("layer_norm_epsilon")), .groups = groups}});
}

namespace {

/// The settings that Mamba and Mamba 2 have in common.
nlohmann::json mamba_settings(const GgufReader& file) {
  for (const char* key : {"attention.head_count", "feed_forward_length"}) {
    file.require_off(key);
  }
  return {{"expand",
           static_cast<double>(file.integer("ssm.inner_size")) / file.integer("embedding_length")},
          {"state_size", file.integer("ssm.state_size")},
          {"conv_kernel", file.integer("ssm.conv_kernel")},
          {"use_conv_bias", file.any_layer_has("ssm_conv1d.bias")},
          {"use_bias", file.any_layer_has("ssm_in.bias")},
          {"layer_norm_epsilon", file.number("attention.layer_norm_rms_epsilon")},
          {"intermediate_size", file.integer("ssm.inner_size")},
          {"rms_norm_eps", nullptr}};
}

void use_gguf_mamba_tensors(Descriptor& decoder) {
  use_gguf_tensors(decoder);
  decoder.names.recurrent_renamed = gguf_mamba_names();
}

}  // namespace

// GGUF's "mamba" holds Falcon-Mamba too.
Descriptor read_mamba(const GgufReader& file) {
  const bool falcon = file.boolean("ssm.dt_b_c_rms", false);
  nlohmann::json settings = mamba_settings(file);
  settings["time_step_rank"] = file.integer("ssm.time_step_rank");
  ConfigReader config = gguf_settings(file, falcon ? "falcon_mamba" : "mamba", settings);
  Descriptor decoder = falcon ? read_falcon_mamba(config) : read_mamba(config);
  use_gguf_mamba_tensors(decoder);
  config.check_all_read();
  return decoder;
}

Descriptor read_mamba2(const GgufReader& file) {
  const int heads = file.integer("ssm.time_step_rank");
  nlohmann::json settings = mamba_settings(file);
  settings["num_heads"] = heads;
  settings["head_dim"] = heads > 0 ? file.integer("ssm.inner_size") / heads : 0;
  settings["n_groups"] = file.integer("ssm.group_count");
  ConfigReader config = gguf_settings(file, "mamba2", settings);
  Descriptor decoder = read_mamba2(config);
  use_gguf_mamba_tensors(decoder);
  config.check_all_read();
  return decoder;
}

}  // namespace espalier::models
