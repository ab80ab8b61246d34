#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/recurrent.h"
#include "models/rope.h"

namespace espalier::models {
namespace {

/// The sizes that every encoder's settings name alike.
struct EncoderSizes {
  int width;
  int heads;
  int layers;
  int hidden;

  int head_dim() const { return width / heads; }
};

EncoderSizes read_sizes(const ConfigReader& config) {
  const EncoderSizes sizes{.width = config.integer("hidden_size"),
                           .heads = config.integer("num_attention_heads"),
                           .layers = config.integer("num_hidden_layers"),
                           .hidden = config.integer("intermediate_size")};
  if (sizes.width < 1 || sizes.layers < 1 || sizes.hidden < 1 || sizes.heads < 1 ||
      sizes.width % sizes.heads != 0) {
    throw base::LoadError(config.path() + ": " + std::to_string(sizes.width) +
                          " columns do not divide among " + std::to_string(sizes.heads) +
                          " attention heads.");
  }
  return sizes;
}

EncoderAttentionDescriptor attention_of(const EncoderSizes& sizes, bool bias) {
  return {.heads = sizes.heads,
          .kv_heads = sizes.heads,
          .head_dim = sizes.head_dim(),
          .scale = 1.0F / std::sqrt(static_cast<float>(sizes.head_dim())),
          .qkv_bias = bias,
          .output_bias = bias};
}

NormDescriptor biased_norm(const ConfigReader& config, const char* key) {
  NormDescriptor norm = layer_norm(config, key);
  norm.bias = true;
  return norm;
}

/// An encoder whose head, where it has one, is the sequence model's; token ids end nowhere.
Descriptor encoder(const ConfigReader& config, int context) {
  return {.family = config.string("model_type"),
          .vocabulary = config.integer("vocab_size"),
          .width = config.integer("hidden_size"),
          .context = context,
          .tied_head = true};
}

/// Layers whose norms take the sums of stream and part, as in the first transformer. The last
/// layer's second norm is the decoder's final one.
void set_sum_norms(Descriptor& decoder, const LayerDescriptor& layer, const NormDescriptor& norm,
                   int layers) {
  decoder.layers.assign(static_cast<std::size_t>(layers), layer);
  for (LayerDescriptor& each : decoder.layers) {
    each.norms_take_sums = true;
    each.attention_post_norm = norm;
    each.mlp_post_norm = norm;
  }
  decoder.layers.back().mlp_post_norm.reset();
  decoder.final_norm = norm;
  decoder.names.final_norm =
      decoder.names.layers + std::to_string(layers - 1) + "." + decoder.names.mlp_post_norm;
  decoder.embedding_norm = norm;
}

Descriptor bert_encoder(ConfigReader& config, int position_offset) {
  const EncoderSizes sizes = read_sizes(config);
  const int positions = config.integer("max_position_embeddings");
  Descriptor decoder = encoder(config, positions - position_offset);
  decoder.positions = LearnedPositionsDescriptor{.rows = positions, .offset = position_offset};
  decoder.token_types = config.integer("type_vocab_size", 2);
  TensorNames& names = decoder.names;
  names.embedding = "embeddings.word_embeddings";
  names.positions = "embeddings.position_embeddings";
  names.embedding_norm = "embeddings.LayerNorm";
  names.layers = "encoder.layer.";
  names.qkv = {"attention.self.query", "attention.self.key", "attention.self.value"};
  names.attention_output = "attention.output.dense";
  names.mlp_input = {"intermediate.dense"};
  names.mlp_down = "output.dense";
  names.attention_post_norm = "attention.output.LayerNorm";
  names.mlp_post_norm = "output.LayerNorm";
  names.token_types = "embeddings.token_type_embeddings";
  const MlpDescriptor mlp{.hidden = sizes.hidden,
                          .activation = read_activation(config, "hidden_act"),
                          .gated = false,
                          .bias = true};
  set_sum_norms(decoder, {.mixer = attention_of(sizes, true), .feed_forward = mlp},
                biased_norm(config, "layer_norm_eps"), sizes.layers);
  if (config.string("position_embedding_type", "absolute") != "absolute") {
    config.fail("position_embedding_type",
                "is '" + config.string("position_embedding_type") + "', which is not supported");
  }
  ignore_keys(config,
              {"classifier_dropout", "gradient_checkpointing", "head_dim", "tie_word_embeddings"});
  return decoder;
}

/// The original of Nomic's BERT names its settings after GPT-2.
void use_gpt2_sizes(ConfigReader& config) {
  const auto older = [&](const char* key, const char* old) {
    if (!config.contains(key) && config.contains(old)) {
      config.set_defaults({{key, config.integer(old)}});
    }
  };
  older("hidden_size", "n_embd");
  older("num_attention_heads", "n_head");
  older("num_hidden_layers", "n_layer");
  older("intermediate_size", "n_inner");
  older("max_position_embeddings", "n_positions");
  if (!config.contains("layer_norm_eps")) {
    config.set_defaults({{"layer_norm_eps", config.number("layer_norm_epsilon", 1e-12)}});
  }
}

}  // namespace

Descriptor read_bert(ConfigReader& config) { return bert_encoder(config, 0); }

// RoBERTa and XLM-R: BERT whose positions begin behind the padding token's id.
Descriptor read_roberta(ConfigReader& config) {
  return bert_encoder(config, config.integer("pad_token_id", 1) + 1);
}

// Nomic's BERT: rotary positions, a gated feed-forward part, no biases.
Descriptor read_nomic_bert(ConfigReader& config) {
  use_gpt2_sizes(config);
  const EncoderSizes sizes = read_sizes(config);
  Descriptor decoder = encoder(config, config.integer("max_position_embeddings", 2048));
  decoder.token_types = config.integer("type_vocab_size", 2);
  TensorNames& names = decoder.names;
  names.embedding = "embeddings.word_embeddings";
  names.embedding_norm = "emb_ln";
  names.layers = "encoder.layers.";
  names.qkv = {"attn.Wqkv"};
  names.attention_output = "attn.out_proj";
  names.mlp_input = {"mlp.fc12", "mlp.fc11"};
  names.mlp_down = "mlp.fc2";
  names.attention_post_norm = "norm1";
  names.mlp_post_norm = "norm2";
  names.token_types = "embeddings.token_type_embeddings";
  EncoderAttentionDescriptor attention = attention_of(sizes, false);
  const double theta = config.number("rotary_emb_base", 1000);
  attention.rope = make_rope(read_rope(config, {}, theta), sizes.head_dim());
  const std::string activation = config.string("activation_function", "swiglu");
  if (activation != "swiglu") {
    config.fail("activation_function", "is '" + activation + "', which is not supported");
  }
  if (config.number("rotary_emb_fraction", 1) != 1) {
    config.fail("rotary_emb_fraction", "other than 1 is not supported");
  }
  for (const char* key :
       {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "prenorm", "rotary_emb_interleaved",
        "parallel_block", "use_rms_norm", "rotary_emb_scale_base"}) {
    config.require_off(key);
  }
  set_sum_norms(
      decoder,
      {.mixer = attention,
       .feed_forward = MlpDescriptor{.hidden = sizes.hidden,
                                     .activation = config.contains("hidden_act")
                                                       ? read_activation(config, "hidden_act")
                                                       : layers::Activation::silu}},
      biased_norm(config, "layer_norm_eps"), sizes.layers);
  ignore_keys(config, {"causal",
                       "classifier_dropout",
                       "dense_seq_output",
                       "fused_bias_fc",
                       "fused_dropout_add_ln",
                       "head_dim",
                       "last_layer_subset",
                       "max_trained_positions",
                       "mup",
                       "n_embd",
                       "n_head",
                       "n_inner",
                       "n_layer",
                       "n_positions",
                       "pad_vocab_to",
                       "pad_vocab_size_multiple",
                       "parallel_block_tied_norm",
                       "reorder_and_upcast_attn",
                       "rotary_scaling_factor",
                       "scale_attn_by_inverse_layer_idx",
                       "scale_attn_weights",
                       "summary_activation",
                       "summary_first_dropout",
                       "summary_proj_to_labels",
                       "summary_type",
                       "summary_use_proj",
                       "tie_word_embeddings",
                       "use_flash_attn",
                       "use_xentropy",
                       "layer_norm_epsilon",
                       "rotary_emb_base"});
  return decoder;
}

// Pre-norm layers with rotary positions; most of them see a neighbourhood alone.
Descriptor read_modernbert(ConfigReader& config) {
  const EncoderSizes sizes = read_sizes(config);
  Descriptor decoder = encoder(config, config.integer("max_position_embeddings"));
  NormDescriptor norm = layer_norm(config, "norm_eps");
  norm.bias = config.boolean("norm_bias", false);
  decoder.embedding_norm = norm;
  decoder.final_norm = norm;
  TensorNames& names = decoder.names;
  names.embedding = "embeddings.tok_embeddings";
  names.embedding_norm = "embeddings.norm";
  names.final_norm = "final_norm";
  names.layers = "layers.";
  names.qkv = {"attn.Wqkv"};
  names.attention_output = "attn.Wo";
  names.mlp_input = {"mlp.Wi"};
  names.mlp_down = "mlp.Wo";
  names.attention_norm = "attn_norm";
  names.mlp_norm = "mlp_norm";
  const MlpDescriptor mlp{.hidden = sizes.hidden,
                          .activation = read_activation(config, "hidden_activation"),
                          .bias = config.boolean("mlp_bias", false)};
  const EncoderAttentionDescriptor attention =
      attention_of(sizes, config.boolean("attention_bias", false));
  const RopeDescriptor global =
      make_rope(read_rope(config, "full_attention", config.number("global_rope_theta", 160000)),
                sizes.head_dim());
  const RopeDescriptor local =
      make_rope(read_rope(config, "sliding_attention", config.number("local_rope_theta", 10000)),
                sizes.head_dim());
  const auto every = static_cast<std::size_t>(config.integer("global_attn_every_n_layers", 3));
  const std::vector<std::string> kinds =
      layer_kinds(config, "layer_types", {"full_attention", "sliding_attention"});
  const int reach = config.integer("local_attention", 128) / 2;
  for (std::size_t i = 0; i < static_cast<std::size_t>(sizes.layers); ++i) {
    const bool slides = kinds.empty() ? every > 0 && i % every != 0 : kinds[i] != "full_attention";
    EncoderAttentionDescriptor mixer = attention;
    mixer.rope = slides ? local : global;
    mixer.reach = slides ? reach : 0;
    LayerDescriptor layer{.mixer = mixer, .feed_forward = mlp, .mlp_norm = norm};
    // The first layer reads the embedding's norm.
    if (i > 0) {
      layer.attention_norm = norm;
    }
    decoder.layers.push_back(layer);
  }
  ignore_keys(config, {"classifier_activation", "classifier_bias", "classifier_dropout",
                       "classifier_pooling", "cls_token_id", "decoder_bias",
                       "deterministic_flash_attn", "gradient_checkpointing",
                       "initializer_cutoff_factor", "layer_norm_eps", "position_embedding_type",
                       "reference_compile", "repad_logits_with_grad", "sliding_window",
                       "sparse_pred_ignore_index", "sparse_prediction", "tie_word_embeddings"});
  return decoder;
}

}  // namespace espalier::models
