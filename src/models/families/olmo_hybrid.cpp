#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

GatedDeltaDescriptor read_mixer(const ConfigReader& config, int width, int heads) {
  const int key_heads = config.integer("linear_num_key_heads", heads);
  const int value_heads = config.integer("linear_num_value_heads", heads);
  if (key_heads < 1 || value_heads % key_heads != 0) {
    config.fail("linear_num_value_heads", "is not a multiple of linear_num_key_heads");
  }
  const int key_dim =
      config.integer("linear_key_head_dim", config.size("hidden_size", 0.75 * width / key_heads));
  return {.key_heads = key_heads,
          .key_dim = key_dim,
          .value_heads = value_heads,
          .value_dim = config.integer("linear_value_head_dim", 2 * key_dim),
          .taps = config.integer("linear_conv_kernel_dim", 4),
          .activation = recurrent_activation(config, "hidden_act"),
          .rate_scale = config.boolean("linear_allow_neg_eigval", true) ? 2.0F : 1.0F,
          .norm_eps = 1e-5F,
          .projections = {"q_proj", "k_proj", "v_proj", "g_proj", "b_proj", "a_proj"},
          .convolutions = {"q_conv1d", "k_conv1d", "v_conv1d"},
          .norm = "o_norm",
          .output = "o_proj"};
}

}  // namespace

// Gated DeltaNet behind a norm, and OLMo 2's attention in front of one.
Descriptor read_olmo_hybrid(ConfigReader& config) {
  Descriptor decoder = dense_decoder(config);
  const NormDescriptor norm = rms_norm(config);
  set_post_norms_only(decoder, norm);
  if (config.is_object("rope_parameters") || config.contains("rope_theta")) {
    set_rope(decoder, read_rope(config));
  }
  set_activation(decoder, read_activation(config, "hidden_act"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  const GatedDeltaDescriptor mixer =
      read_mixer(config, decoder.width, decoder.layers.front().attention().heads);
  const std::vector<std::string> kinds =
      layer_kinds(config, "layer_types", {"linear_attention", "full_attention"});
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    LayerDescriptor& layer = decoder.layers[i];
    if (kinds.empty() ? i % 4 == 3 : kinds[i] == "full_attention") {
      layer.attention().qk_norm =
          QkNormDescriptor{.scope = QkNormDescriptor::Scope::projection, .norm = norm};
      continue;
    }
    layer.mixer = RecurrentDescriptor(mixer);
    layer.attention_norm = norm;
    layer.mlp_norm = norm;
    layer.attention_post_norm.reset();
    layer.mlp_post_norm.reset();
  }
  decoder.names.attention_norm = "attention_layer_norm";
  decoder.names.attention_post_norm = "feedforward_layer_norm";
  decoder.names.mlp_norm = "feedforward_layer_norm";
  decoder.names.recurrent = "linear_attn.";
  ignore_keys(config, {"linear_a_log_max", "linear_a_log_min", "linear_dt_init_floor",
                       "linear_dt_max", "linear_dt_min"});
  return decoder;
}

}  // namespace espalier::models
