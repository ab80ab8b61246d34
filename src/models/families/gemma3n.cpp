#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/gemma4.h"
#include "models/families/recurrent.h"

namespace espalier::models {
namespace {

/// Where a standard normal distribution has `share` of its mass below, by halving.
double normal_quantile(double share) {
  constexpr double farthest = 40;
  constexpr int halvings = 80;
  double low = -farthest;
  double high = farthest;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    const double below = std::erfc(-middle / std::numbers::sqrt2) / 2;
    (below < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// One number for all layers, or one each.
template <class Number>
std::vector<Number> for_each_layer(const ConfigReader& config, const char* key,
                                   std::vector<Number> values, std::size_t layers) {
  if (values.size() == 1) {
    values.resize(layers, values.front());
  }
  if (values.size() != layers) {
    config.fail(key, "has " + std::to_string(values.size()) + " entries for " +
                         std::to_string(layers) + " layers");
  }
  return values;
}

void read_hidden_sizes(const ConfigReader& config, const std::vector<int>& sizes,
                       Descriptor& decoder) {
  constexpr std::size_t usual_sparse_layers = 10;
  constexpr double usual_sparsity = 0.95;
  constexpr const char* key = "activation_sparsity_pattern";
  const std::size_t layers = decoder.layers.size();
  const std::vector<int> hidden = for_each_layer(config, "intermediate_size", sizes, layers);
  std::vector<double> sparsity = config.numbers(key);
  if (sparsity.empty()) {
    sparsity.resize(layers);
    if (layers > usual_sparse_layers) {
      std::fill_n(sparsity.begin(), usual_sparse_layers, usual_sparsity);
    }
  }
  sparsity = for_each_layer(config, key, sparsity, layers);
  for (std::size_t i = 0; i < layers; ++i) {
    MlpDescriptor& mlp = decoder.layers[i].mlp();
    mlp.hidden = hidden[i];
    if (!(sparsity[i] >= 0 && sparsity[i] < 1)) {
      config.fail(key, "is no list of shares below 1");
    }
    if (sparsity[i] > 0) {
      mlp.gate_cutoff =
          GateCutoffDescriptor{.deviations = static_cast<float>(normal_quantile(sparsity[i]))};
    }
  }
}

void read_alt_up(const ConfigReader& config, Descriptor& decoder, const NormDescriptor& norm) {
  const AltUpDescriptor part{.streams = config.integer("altup_num_inputs", 4),
                             .active = config.integer("altup_active_idx", 0),
                             .output_scale = config.boolean("altup_correct_scale", true),
                             .norm = norm};
  constexpr int most_streams = 64;
  if (part.streams < 1 || part.streams > most_streams || part.active >= part.streams) {
    config.fail("altup_num_inputs", "is " + std::to_string(part.streams) + " with stream " +
                                        std::to_string(part.active) + " active");
  }
  decoder.alt_up = part;
  decoder.names.alt_up = {.spread = "model.altup_projections.",
                          .merge = "model.altup_unembed_projections.",
                          .norm = "altup.router_norm",
                          .router = "altup.modality_router",
                          .prediction = "altup.prediction_coefs",
                          .correction = "altup.correction_coefs",
                          .output_scale = "altup.correct_output_scale"};
}

}  // namespace

// Gemma 3n's text model: Gemma 4's vectors for each token and layer and shared keys; several
// streams that predict one another, a low-rank part beside attention, hidden layers cut down to
// their largest elements.
Descriptor read_gemma3n(ConfigReader& config) {
  constexpr int full_interval = 5;
  config.set_defaults({{"tie_word_embeddings", true},
                       {"head_dim", 256},
                       {"rms_norm_eps", 1e-6},
                       {"hidden_activation", "gelu_pytorch_tanh"},
                       {"num_kv_shared_layers", 15},
                       {"vocab_size_per_layer_input", 262144}});
  const std::vector<int> hidden = config.integers("intermediate_size");
  config.replace("intermediate_size", 0);
  Descriptor decoder = dense_decoder(config);
  const NormDescriptor norm = rms_norm(config);
  set_pre_norms(decoder, norm);
  set_activation(decoder, read_activation(config, "hidden_activation"));
  set_attention_bias(decoder, config.boolean("attention_bias", false));
  set_windows(decoder, sliding_layers(config, full_interval),
              config.integer("sliding_window", 512));
  decoder.embedding_scale = std::sqrt(static_cast<float>(decoder.width));
  decoder.logit_softcap = static_cast<float>(config.number("final_logit_softcapping", 30));
  decoder.names.mlp_norm = "pre_feedforward_layernorm";
  decoder.names.laurel = {.input = "laurel.linear_left",
                          .output = "laurel.linear_right",
                          .norm = "laurel.post_laurel_norm"};
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention_post_norm = norm;
    layer.mlp_post_norm = norm;
    layer.laurel = LaurelDescriptor{.rank = config.integer("laurel_rank", 64), .norm = norm};
  }
  read_hidden_sizes(config, hidden, decoder);
  RopeSettings local_rope = read_rope(config, "sliding_attention");
  if (config.contains("rope_local_base_freq")) {
    local_rope = {.theta = config.number("rope_local_base_freq")};
  }
  set_normed_attention(decoder, norm, local_rope, read_rope(config, "full_attention", 1e6));
  share_keys(config, decoder);
  read_layer_inputs(config, decoder, norm);
  read_alt_up(config, decoder, norm);
  ignore_keys(config, {"altup_coef_clip", "query_pre_attn_scalar"});
  return decoder;
}

}  // namespace espalier::models
