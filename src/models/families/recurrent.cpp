#include "models/families/recurrent.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "models/families/dense.h"

namespace espalier::models {

Descriptor recurrent_decoder(ConfigReader& config) {
  constexpr int unlimited = 1 << 20;
  Descriptor decoder{.family = config.string("model_type"),
                     .vocabulary = config.integer("vocab_size"),
                     .width = config.integer("hidden_size"),
                     .context = config.integer("max_position_embeddings", unlimited),
                     .tied_head = config.boolean("tie_word_embeddings", true)};
  if (decoder.width < 1 || decoder.vocabulary < 1 || decoder.context < 1 ||
      config.integer("num_hidden_layers") < 1) {
    throw base::LoadError(config.path() + ": the model has a size of zero.");
  }
  for (const int token : config.integers("eos_token_id")) {
    decoder.end_tokens.push_back(token);
  }
  return decoder;
}

std::vector<std::string> layer_kinds(const ConfigReader& config, std::string_view key,
                                     const std::vector<std::string>& kinds) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> older = {
      {{"mamba", "linear_attention"}, {"attention", "full_attention"}}};
  std::vector<std::string> layers = config.strings(key);
  for (std::string& layer : layers) {
    for (const auto& [old, current] : older) {
      if (layer == old) {
        layer = current;
      }
    }
    if (std::ranges::find(kinds, layer) == kinds.end()) {
      config.fail(key, "names '" + layer + "', which is not supported");
    }
  }
  if (!layers.empty() && config.contains("num_hidden_layers") &&
      layers.size() != static_cast<std::size_t>(config.integer("num_hidden_layers"))) {
    config.fail(key, "has " + std::to_string(layers.size()) + " entries for " +
                         std::to_string(config.integer("num_hidden_layers")) + " layers");
  }
  return layers;
}

void ignore_keys(const ConfigReader& config, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    config.ignore(key);
  }
}

int integer_or_auto(const ConfigReader& config, std::string_view key, int automatic) {
  if (!config.is_string(key)) {
    return config.integer(key, automatic);
  }
  if (config.string(key) != "auto") {
    config.fail(key, "is '" + config.string(key) + "', expected a whole number or 'auto'");
  }
  return automatic;
}

RecurrentDescriptor& recurrent_part(Descriptor& decoder, std::size_t index) {
  return std::get<RecurrentDescriptor>(decoder.layers.at(index).mixer);
}

Mamba2Descriptor read_mamba2_part(const ConfigReader& config, int channels) {
  const int heads = config.integer("mamba_n_heads", 128);
  const int head_dim = integer_or_auto(config, "mamba_d_head", heads > 0 ? channels / heads : 0);
  const int groups = config.integer("mamba_n_groups", 1);
  if (heads < 1 || head_dim < 1 || config.product("mamba_n_heads", heads, head_dim) != channels ||
      groups < 1 || heads % groups != 0) {
    config.fail("mamba_n_heads", "is " + std::to_string(heads) + ", which does not divide " +
                                     std::to_string(channels) + " channels in " +
                                     std::to_string(groups) + " groups");
  }
  std::vector<double> limits = config.numbers("time_step_limit");
  if (limits.empty()) {
    limits = {0.0, std::numeric_limits<double>::infinity()};
  }
  if (limits.size() != 2) {
    config.fail("time_step_limit", "must be a list of two numbers");
  }
  ignore_keys(config, {"mamba_chunk_size", "mamba_expand"});
  const bool bias = config.boolean("mamba_proj_bias", false);
  return {.heads = heads,
          .head_dim = head_dim,
          .groups = groups,
          .states = config.integer("mamba_d_state", 256),
          .convolution = {.taps = config.integer("mamba_d_conv", 4),
                          .bias = config.boolean("mamba_conv_bias", true),
                          .activation = recurrent_activation(config, "hidden_act")},
          .input_bias = bias,
          .output_bias = bias,
          .least_step = static_cast<float>(limits[0]),
          .most_step = static_cast<float>(limits[1])};
}

layers::Activation recurrent_activation(const ConfigReader& config, std::string_view key) {
  const layers::Activation activation =
      config.contains(key) ? read_activation(config, key) : layers::Activation::silu;
  if (activation == layers::Activation::xielu) {
    config.fail(key, "is '" + config.string(key) + "', which is not supported in recurrent layers");
  }
  return activation;
}

Descriptor attention_and_mamba2_decoder(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  set_pre_norms(decoder, rms_norm(config));
  set_rope(decoder, read_rope(config));
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  set_mlp_bias(decoder, config.boolean("mlp_bias", false));
  decoder.names.final_norm = "model.final_layernorm";
  decoder.names.mlp_norm = "pre_ff_layernorm";
  decoder.names.mlp_input = {"feed_forward.gate_proj", "feed_forward.up_proj"};
  decoder.names.mlp_down = "feed_forward.down_proj";
  decoder.names.recurrent = "mamba.";
  return decoder;
}

}  // namespace espalier::models
