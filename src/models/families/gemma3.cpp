#include "models/families/gemma3.h"

#include <cmath>
#include <optional>
#include <variant>

#include "models/families/dense.h"

namespace espalier::models {
namespace {

/// Norms before and after both parts, and one for q and k.
void set_gemma_norms(Descriptor& decoder, const NormDescriptor& norm) {
  set_pre_norms(decoder, norm);
  decoder.embedding_scale = std::sqrt(static_cast<float>(decoder.width));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention_post_norm = norm;
    layer.mlp_post_norm = norm;
    layer.attention.qk_norm = QkNormDescriptor{.norm = norm};
    std::get<GatedMlpDescriptor>(layer.mlp).activation = layers::Activation::gelu_tanh;
  }
}

void set_windows(Descriptor& decoder, const std::vector<bool>& sliding, int window,
                 const RopeSettings& full_rope, const RopeSettings& sliding_rope) {
  const int head_dim = decoder.layers.front().attention.head_dim;
  const RopeDescriptor full = make_rope(full_rope, head_dim);
  const RopeDescriptor local = make_rope(sliding_rope, head_dim);
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    AttentionDescriptor& attention = decoder.layers[i].attention;
    attention.window = sliding[i] ? window : 0;
    attention.rope = sliding[i] ? local : full;
  }
}

constexpr int default_pattern = 6;  // each sixth layer is full

/// GGUF does not state the 27B model's query scale, which alone differs from 1/sqrt(head_dim).
constexpr std::size_t layers_of_27b = 62;

}  // namespace

Descriptor read_gemma3(ConfigReader& config) {
  config.set_defaults({{"head_dim", 256},
                       {"hidden_activation", "gelu_pytorch_tanh"},
                       {"max_position_embeddings", 131072},
                       {"num_attention_heads", 8},
                       {"num_key_value_heads", 4},
                       {"query_pre_attn_scalar", 256},
                       {"rms_norm_eps", 1e-6},
                       {"sliding_window", 4096},
                       {"tie_word_embeddings", true},
                       {"vocab_size", 262208}});
  config.require_off("use_bidirectional_attention");
  Descriptor decoder = dense_decoder(config);
  NormDescriptor norm = rms_norm(config);
  norm.weight_offset = 1;
  set_gemma_norms(decoder, norm);
  decoder.names.mlp_norm = "pre_feedforward_layernorm";
  decoder.logit_softcap = static_cast<float>(config.number("final_logit_softcapping", 0));

  const int pattern = config.integer("sliding_window_pattern",
                                     config.integer("_sliding_window_pattern", default_pattern));
  RopeSettings local_rope;
  if (config.contains("rope_parameters")) {
    local_rope = read_rope(config, "sliding_attention");
  } else {
    local_rope.theta = config.number("rope_local_base_freq", 10000);
  }
  set_windows(decoder, sliding_layers(config, pattern), config.integer("sliding_window"),
              read_rope(config, "full_attention", 1e6), local_rope);
  const auto scalar = static_cast<float>(config.number("query_pre_attn_scalar"));
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention.scale = 1 / std::sqrt(scalar);
    layer.attention.softcap = static_cast<float>(config.number("attn_logit_softcapping", 0));
    layer.attention.qkv_bias = config.boolean("attention_bias", false);
    layer.attention.output_bias = layer.attention.qkv_bias;
    std::get<GatedMlpDescriptor>(layer.mlp).activation =
        read_activation(config, "hidden_activation");
  }
  return decoder;
}

Descriptor read_gemma3(const GgufReader& file) {
  Descriptor decoder = dense_decoder(file);
  set_gemma_norms(decoder, rms_norm(file));  // the file's weights have the offset in them
  decoder.logit_softcap = static_cast<float>(file.number("final_logit_softcapping", 0));
  const int head_dim = decoder.layers.front().attention.head_dim;
  const RopeSettings local_rope{.theta = file.number("rope.freq_base_swa", 10000)};
  const int pattern = file.integer("attention.sliding_window_pattern", default_pattern);
  set_windows(decoder, every_nth_full(decoder.layers.size(), pattern),
              file.integer("attention.sliding_window"), read_rope(file, head_dim, 1e6), local_rope);
  if (decoder.layers.size() == layers_of_27b) {
    for (LayerDescriptor& layer : decoder.layers) {
      layer.attention.scale =
          std::sqrt(static_cast<float>(layer.attention.heads) / static_cast<float>(decoder.width));
    }
  }
  return decoder;
}

}  // namespace espalier::models
