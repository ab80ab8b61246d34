#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/hidden_size.h"

namespace espalier::models {
namespace {

/// Layer norms with biases and plain feed-forward parts.
void set_gpt(Descriptor& decoder, const ConfigReader& config, std::string_view eps_key,
             std::string_view activation_key) {
  NormDescriptor norm = layer_norm(config, eps_key);
  norm.bias = true;
  set_pre_norms(decoder, norm);
  set_plain_mlp(decoder);
  set_activation(decoder, read_activation(config, activation_key));
}

/// GPT-2's spelling of the sizes.
void use_gpt2_keys(ConfigReader& config) {
  config.set_defaults({{"hidden_size", config.integer("n_embd")},
                       {"num_attention_heads", config.integer("n_head")},
                       {"num_hidden_layers", config.integer("n_layer")},
                       {"max_position_embeddings", config.integer("n_positions")},
                       {"tie_word_embeddings", true}});
  config.set_defaults({{"intermediate_size", 0}});
  config.ignore("n_ctx");
  config.ignore("num_key_value_heads");
}

/// GPT-2's names of what its successors share with it.
void use_gpt2_names(TensorNames& names) {
  names.embedding = "transformer.wte";
  names.final_norm = "transformer.ln_f";
  names.layers = "transformer.h.";
  names.mlp_input = {"mlp.c_fc"};
  names.mlp_down = "mlp.c_proj";
  names.attention_norm = "ln_1";
  names.mlp_norm = "ln_2";
}

/// GPT-2's layout: learned positions, one matrix for q, k and v, biases everywhere.
Descriptor gpt2_decoder(ConfigReader& config) {
  use_gpt2_keys(config);
  config.require_off("add_cross_attention");
  Descriptor decoder = dense_decoder(config);
  set_hidden(decoder, config.integer("n_inner", config.product("n_embd", 4, decoder.width)));
  set_gpt(decoder, config, "layer_norm_epsilon", "activation_function");
  set_attention_bias(decoder, true);
  set_mlp_bias(decoder, true);
  decoder.positions = LearnedPositionsDescriptor{.rows = decoder.context};
  TensorNames& names = decoder.names;
  use_gpt2_names(names);
  names.positions = "transformer.wpe";
  names.qkv = {"attn.c_attn"};
  names.attention_output = "attn.c_proj";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().kv_heads = layer.attention().heads;
    if (!config.boolean("scale_attn_weights", true)) {
      layer.attention().scale = 1;
    }
  }
  return decoder;
}

}  // namespace

// GPT-2: matrices lie transposed.
Descriptor read_gpt2(ConfigReader& config) {
  Descriptor decoder = gpt2_decoder(config);
  decoder.names.transposed = true;
  if (config.boolean("scale_attn_by_inverse_layer_idx", false)) {
    for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
      decoder.layers[i].attention().scale /= static_cast<float>(i + 1);
    }
  }
  return decoder;
}

// GPT BigCode (StarCoder 1): one key-value head, or each head's q, k and v below one another.
Descriptor read_gpt_bigcode(ConfigReader& config) {
  Descriptor decoder = gpt2_decoder(config);
  const bool multi_query = config.boolean("multi_query", true);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().kv_heads = multi_query ? 1 : layer.attention().heads;
    if (!multi_query) {
      layer.attention().grouped_qkv = GroupedQkvDescriptor{};
    }
  }
  return decoder;
}

// GPT-NeoX (Pythia): each head's q, k and v below one another, perhaps parallel parts.
Descriptor read_gpt_neox(ConfigReader& config) {
  config.set_defaults({{"rope_theta", config.number("rotary_emb_base", 10000)},
                       {"partial_rotary_factor", config.number("rotary_pct", 0.25)}});
  config.ignore("num_key_value_heads");
  Descriptor decoder = dense_decoder(config);
  set_gpt(decoder, config, "layer_norm_eps", "hidden_act");
  set_rope(decoder, read_rope(config));
  set_attention_bias(decoder, config.boolean("attention_bias", true));
  set_mlp_bias(decoder, true);
  TensorNames& names = decoder.names;
  names.embedding = "gpt_neox.embed_in";
  names.final_norm = "gpt_neox.final_layer_norm";
  names.head = "embed_out";
  names.layers = "gpt_neox.layers.";
  names.qkv = {"attention.query_key_value"};
  names.attention_output = "attention.dense";
  names.mlp_input = {"mlp.dense_h_to_4h"};
  names.mlp_down = "mlp.dense_4h_to_h";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().kv_heads = layer.attention().heads;
    layer.attention().grouped_qkv = GroupedQkvDescriptor{};
    layer.parallel = config.boolean("use_parallel_residual", true);
  }
  return decoder;
}

// GPT-J: parallel parts behind one norm, interleaved RoPE on the first elements of each head.
Descriptor read_gptj(ConfigReader& config) {
  use_gpt2_keys(config);
  Descriptor decoder = dense_decoder(config);
  set_hidden(decoder, config.integer("n_inner", config.product("n_embd", 4, decoder.width)));
  decoder.tied_head = config.boolean("tie_word_embeddings", false);
  decoder.head_bias = !decoder.tied_head;
  set_gpt(decoder, config, "layer_norm_epsilon", "activation_function");
  set_mlp_bias(decoder, true);
  RopeSettings rope = read_rope(config);
  const int head_dim = decoder.layers.front().attention().head_dim;
  rope.partial = static_cast<double>(config.integer("rotary_dim", head_dim)) / head_dim;
  set_rope(decoder, rope, true);
  TensorNames& names = decoder.names;
  use_gpt2_names(names);
  names.qkv = {"attn.q_proj", "attn.k_proj", "attn.v_proj"};
  names.attention_output = "attn.out_proj";
  names.mlp_input = {"mlp.fc_in"};
  names.mlp_down = "mlp.fc_out";
  names.mlp_norm = "ln_1";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.parallel = true;
  }
  return decoder;
}

// CodeGen: GPT-J whose one matrix has queries, values and keys of a quarter of the heads at a time.
Descriptor read_codegen(ConfigReader& config) {
  constexpr int groups = 4;
  Descriptor decoder = read_gptj(config);
  decoder.names.qkv = {"attn.qkv_proj"};
  for (LayerDescriptor& layer : decoder.layers) {
    if (layer.attention().heads % groups != 0) {
      config.fail("n_head", "is no multiple of " + std::to_string(groups));
    }
    layer.attention().grouped_qkv =
        GroupedQkvDescriptor{.groups = groups, .values_before_keys = true};
  }
  return decoder;
}

// GPT-Neo: GPT-2 with every second layer sliding, scores as they are, no biases for q, k and v.
Descriptor read_gpt_neo(ConfigReader& config) {
  config.set_defaults({{"num_attention_heads", config.integer("num_heads")},
                       {"num_hidden_layers", config.integer("num_layers")},
                       {"tie_word_embeddings", true},
                       {"activation_function", "gelu_new"},
                       {"layer_norm_epsilon", 1e-5}});
  if (!config.contains("intermediate_size")) {
    config.replace("intermediate_size", 0);
  }
  config.ignore("num_key_value_heads");
  Descriptor decoder = dense_decoder(config);
  const int hidden = config.integer("intermediate_size");
  set_hidden(decoder, hidden > 0 ? hidden : config.product("hidden_size", 4, decoder.width));
  set_gpt(decoder, config, "layer_norm_epsilon", "activation_function");
  set_mlp_bias(decoder, true);
  decoder.positions = LearnedPositionsDescriptor{.rows = decoder.context};
  TensorNames& names = decoder.names;
  use_gpt2_names(names);
  names.positions = "transformer.wpe";
  names.qkv = {"attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"};
  names.attention_output = "attn.attention.out_proj";
  const std::vector<std::string> kinds = config.strings("attention_layers");
  if (!kinds.empty() && kinds.size() != decoder.layers.size()) {
    config.fail("attention_layers", "has another number of entries than there are layers");
  }
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    AttentionDescriptor& attention = decoder.layers[i].attention();
    attention.kv_heads = attention.heads;
    attention.scale = 1;
    attention.output_bias = true;
    const bool slides = kinds.empty() ? i % 2 != 0 : kinds[i] == "local";
    attention.window = slides ? config.integer("window_size", 256) : 0;
  }
  config.ignore_all("attention_types");
  config.ignore("embed_dropout");
  config.ignore("resid_dropout");
  return decoder;
}

namespace {

/// What comes from fairseq: learned positions that begin at row 2, its names behind `prefix`.
void set_fairseq_layout(Descriptor& decoder, const std::string& prefix) {
  constexpr int first_row = 2;
  decoder.positions =
      LearnedPositionsDescriptor{.rows = decoder.context + first_row, .offset = first_row};
  TensorNames& names = decoder.names;
  names.embedding = prefix + "embed_tokens";
  names.positions = prefix + "embed_positions";
  names.final_norm = prefix + "final_layer_norm";
  names.layers = prefix + "layers.";
  names.attention_output = "self_attn.out_proj";
  names.mlp_input = {"fc1"};
  names.mlp_down = "fc2";
  names.attention_norm = "self_attn_layer_norm";
  names.mlp_norm = "final_layer_norm";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().kv_heads = layer.attention().heads;
  }
}

}  // namespace

// BioGPT: GPT with learned positions that begin at row 2, and a scaled embedding.
Descriptor read_biogpt(ConfigReader& config) {
  config.set_defaults({{"tie_word_embeddings", true}, {"layer_norm_eps", 1e-12}});
  config.ignore("num_key_value_heads");
  Descriptor decoder = dense_decoder(config);
  set_gpt(decoder, config, "layer_norm_eps", "hidden_act");
  set_attention_bias(decoder, true);
  set_mlp_bias(decoder, true);
  if (config.boolean("scale_embedding", true)) {
    decoder.embedding_scale = std::sqrt(static_cast<float>(decoder.width));
  }
  set_fairseq_layout(decoder, "biogpt.");
  decoder.names.final_norm = "biogpt.layer_norm";
  decoder.names.head = "output_projection";
  return decoder;
}

// Persimmon: GPT-NeoX's matrices, half of each head rotated, norms for q and k.
Descriptor read_persimmon(ConfigReader& config) {
  config.set_defaults({{"partial_rotary_factor", 0.5}, {"hidden_act", "relu2"}});
  config.ignore("num_key_value_heads");
  Descriptor decoder = dense_decoder(config);
  set_gpt(decoder, config, "layer_norm_eps", "hidden_act");
  set_rope(decoder, read_rope(config, {}, 25000));
  set_attention_bias(decoder, true);
  set_mlp_bias(decoder, true);
  TensorNames& names = decoder.names;
  names.final_norm = "model.final_layernorm";
  names.qkv = {"self_attn.query_key_value"};
  names.attention_output = "self_attn.dense";
  names.q_norm = "self_attn.q_layernorm";
  names.k_norm = "self_attn.k_layernorm";
  names.mlp_input = {"mlp.dense_h_to_4h"};
  names.mlp_down = "mlp.dense_4h_to_h";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().kv_heads = layer.attention().heads;
    layer.attention().grouped_qkv = GroupedQkvDescriptor{};
  }
  if (config.boolean("qk_layernorm", true)) {
    set_qk_norm(decoder);
  }
  return decoder;
}

// Phi 1, 1.5 and 2: parallel parts behind one norm, part of each head rotated, biases everywhere.
Descriptor read_phi(ConfigReader& config) {
  config.set_defaults({{"partial_rotary_factor", 0.5}, {"hidden_act", "gelu_new"}});
  Descriptor decoder = dense_decoder(config);
  set_gpt(decoder, config, "layer_norm_eps", "hidden_act");
  set_rope(decoder, read_rope(config));
  set_attention_bias(decoder, true);
  set_mlp_bias(decoder, true);
  decoder.head_bias = true;
  decoder.names.final_norm = "model.final_layernorm";
  decoder.names.attention_output = "self_attn.dense";
  decoder.names.mlp_input = {"mlp.fc1"};
  decoder.names.mlp_down = "mlp.fc2";
  decoder.names.mlp_norm = decoder.names.attention_norm;
  decoder.names.q_norm = "self_attn.q_layernorm";
  decoder.names.k_norm = "self_attn.k_layernorm";
  if (config.boolean("qk_layernorm", false)) {
    set_qk_norm(decoder);
  }
  for (LayerDescriptor& layer : decoder.layers) {
    layer.parallel = true;
  }
  return decoder;
}

namespace {

/// Norms behind the sums of stream and part; the last one is the decoder's final norm.
void set_sum_norms(Descriptor& decoder) {
  TensorNames& names = decoder.names;
  names.attention_post_norm = names.attention_norm;
  names.mlp_post_norm = names.mlp_norm;
  names.final_norm =
      names.layers + std::to_string(decoder.layers.size() - 1) + "." + names.mlp_post_norm;
  for (LayerDescriptor& layer : decoder.layers) {
    layer.norms_take_sums = true;
    layer.attention_post_norm = std::exchange(layer.attention_norm, std::nullopt);
    layer.mlp_post_norm = std::exchange(layer.mlp_norm, std::nullopt);
  }
  decoder.layers.back().mlp_post_norm.reset();
}

}  // namespace

// The first GPT: GPT-2 with norms behind its parts. Its "gelu" is the tanh form.
Descriptor read_openai_gpt(ConfigReader& config) {
  const std::string activation = config.string("afn", "gelu");
  config.set_defaults({{"activation_function", activation == "gelu" ? "gelu_new" : activation},
                       {"layer_norm_epsilon", 1e-5}});
  Descriptor decoder = read_gpt2(config);
  TensorNames& names = decoder.names;
  names.embedding = "transformer.tokens_embed";
  names.positions = "transformer.positions_embed";
  set_sum_norms(decoder);
  return decoder;
}

// OPT: learned positions that begin at row 2, plain parts with ReLU.
Descriptor read_opt(ConfigReader& config) {
  config.set_defaults({{"intermediate_size", 0},
                       {"tie_word_embeddings", true},
                       {"activation_function", "relu"},
                       {"layer_norm_eps", 1e-5}});
  config.ignore("num_key_value_heads");
  config.require_off("_remove_final_layer_norm");
  Descriptor decoder = dense_decoder(config);
  if (const int outer = config.integer("word_embed_proj_dim", decoder.width);
      outer != decoder.width) {
    decoder.embedding_width = outer;
    decoder.names.embedding_output = "model.decoder.project_in";
    decoder.names.head_input = "model.decoder.project_out";
  }
  set_hidden(decoder, config.integer("ffn_dim"));
  set_gpt(decoder, config, "layer_norm_eps", "activation_function");
  const bool bias = config.boolean("enable_bias", true);
  set_attention_bias(decoder, bias);
  set_mlp_bias(decoder, bias);
  if (!config.boolean("layer_norm_elementwise_affine", true)) {
    NormDescriptor plain = decoder.final_norm;
    plain.weight = false;
    plain.bias = false;
    set_pre_norms(decoder, plain);
  }
  set_fairseq_layout(decoder, "model.decoder.");
  if (!config.boolean("do_layer_norm_before", true)) {
    set_sum_norms(decoder);
  }
  return decoder;
}

}  // namespace espalier::models
