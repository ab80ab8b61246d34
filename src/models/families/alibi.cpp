#include <cmath>
#include <vector>

#include "models/families/dense.h"
#include "models/families/families.h"
#include "models/families/hidden_size.h"

namespace espalier::models {
namespace {

/// ALiBi's slopes (Press et al. 2021): powers of one number for a power of two of heads; for the
/// others every second one of twice as many.
std::vector<float> alibi_slopes(int heads) {
  int power = 1;
  while (2 * power <= heads) {
    power *= 2;
  }
  std::vector<float> slopes;
  for (int i = 1; i <= power; ++i) {
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * i / power)));
  }
  for (int i = 1; static_cast<int>(slopes.size()) < heads; i += 2) {
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * i / (2 * power))));
  }
  return slopes;
}

/// MPT's: `largest` instead of 8, and for other numbers of heads those of the next power of two,
/// the odd ones last.
std::vector<float> mpt_slopes(int heads, double largest) {
  int power = 1;
  while (power < heads) {
    power *= 2;
  }
  const auto slope = [&](int i) {
    return static_cast<float>(std::exp2(-largest * (i + 1) / power));
  };
  std::vector<float> slopes;
  if (power == heads) {
    for (int i = 0; i < heads; ++i) {
      slopes.push_back(slope(i));
    }
    return slopes;
  }
  for (const int first : {1, 0}) {
    for (int i = first; i < power; i += 2) {
      slopes.push_back(slope(i));
    }
  }
  slopes.resize(static_cast<std::size_t>(heads));
  return slopes;
}

void name_falcon_layers(TensorNames& names) {
  names.embedding = "transformer.word_embeddings";
  names.final_norm = "transformer.ln_f";
  names.layers = "transformer.h.";
  names.qkv = {"self_attention.query_key_value"};
  names.attention_output = "self_attention.dense";
  names.mlp_input = {"mlp.dense_h_to_4h"};
  names.mlp_down = "mlp.dense_4h_to_h";
}

NormDescriptor biased_layer_norm(const ConfigReader& config, std::string_view key) {
  NormDescriptor norm = layer_norm(config, key);
  norm.bias = true;
  return norm;
}

void use_bloom_keys(ConfigReader& config) {
  for (const auto& [name, older] :
       {std::pair{"num_hidden_layers", "n_layer"}, std::pair{"num_attention_heads", "n_head"},
        std::pair{"hidden_size", "n_embed"}}) {
    if (config.contains(older)) {
      config.set_defaults({{name, config.integer(older)}});
    }
  }
}

}  // namespace

// BLOOM: ALiBi, a norm behind the embedding, each head's q, k and v below one another.
Descriptor read_bloom(ConfigReader& config) {
  use_bloom_keys(config);
  config.set_defaults({{"tie_word_embeddings", true},
                       {"max_position_embeddings", config.integer("seq_length", 2048)},
                       {"intermediate_size", 0},
                       {"layer_norm_epsilon", 1e-5}});
  for (const char* key :
       {"num_key_value_heads", "attention_softmax_in_fp32", "masked_softmax_fusion",
        "bias_dropout_fusion", "slow_but_exact", "offset_alibi"}) {
    config.ignore(key);
  }
  config.require_off("apply_residual_connection_post_layernorm");
  Descriptor decoder = dense_decoder(config);
  set_hidden(decoder, config.product("hidden_size", 4, decoder.width));
  const NormDescriptor norm = biased_layer_norm(config, "layer_norm_epsilon");
  set_pre_norms(decoder, norm);
  set_plain_mlp(decoder);
  set_activation(decoder, layers::Activation::gelu_tanh);
  set_attention_bias(decoder, true);
  set_mlp_bias(decoder, true);
  decoder.embedding_norm = norm;
  name_falcon_layers(decoder.names);
  decoder.names.embedding_norm = "transformer.word_embeddings_layernorm";
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().kv_heads = layer.attention().heads;
    layer.attention().grouped_qkv = GroupedQkvDescriptor{};
    layer.attention().alibi_slopes = alibi_slopes(layer.attention().heads);
  }
  return decoder;
}

// Falcon: parallel parts, behind one norm or two; one or few key-value heads; RoPE or ALiBi.
Descriptor read_falcon(ConfigReader& config) {
  use_bloom_keys(config);
  config.set_defaults({{"tie_word_embeddings", true},
                       {"max_position_embeddings", 2048},
                       {"activation", "gelu"},
                       {"layer_norm_epsilon", 1e-5}});
  config.set_defaults({{"intermediate_size", 0}});
  config.replace("num_key_value_heads", nullptr);
  const bool newer = config.boolean("new_decoder_architecture", false);
  const bool multi_query = config.boolean("multi_query", true);
  const bool parallel = config.boolean("parallel_attn", true) || newer;
  const bool two_norms = config.integer("num_ln_in_parallel_attn", 2) == 2 && newer;
  Descriptor decoder = dense_decoder(config);
  set_hidden(decoder,
             config.integer("ffn_hidden_size", config.product("hidden_size", 4, decoder.width)));
  set_pre_norms(decoder, biased_layer_norm(config, "layer_norm_epsilon"));
  set_plain_mlp(decoder);
  set_activation(decoder, read_activation(config, "activation"));
  const bool bias = config.boolean("bias", false);
  set_attention_bias(decoder, bias);
  set_mlp_bias(decoder, bias);
  const bool alibi = config.boolean("alibi", false);
  const RopeSettings rope = read_rope(config);
  if (!alibi) {
    set_rope(decoder, rope);
  }
  name_falcon_layers(decoder.names);
  if (two_norms) {
    decoder.names.attention_norm = "ln_attn";
    decoder.names.mlp_norm = "ln_mlp";
  } else if (parallel) {
    decoder.names.mlp_norm = decoder.names.attention_norm;
  }
  const int heads = config.integer("num_attention_heads");
  const int newer_kv_heads = config.integer("num_kv_heads", heads);
  for (LayerDescriptor& layer : decoder.layers) {
    AttentionDescriptor& attention = layer.attention();
    attention.kv_heads = newer ? newer_kv_heads : multi_query ? 1 : heads;
    if (newer || !multi_query) {
      attention.grouped_qkv = GroupedQkvDescriptor{};
    }
    layer.parallel = parallel;
    if (alibi) {
      attention.alibi_slopes = alibi_slopes(heads);
      for (float& slope : attention.alibi_slopes) {
        slope *= attention.scale;  // Falcon scales what it has added them to
      }
    }
  }
  return decoder;
}

// MPT: ALiBi or learned positions, norms without biases, q, k and v in one matrix.
Descriptor read_mpt(ConfigReader& config) {
  config.set_defaults({{"hidden_size", config.integer("d_model")},
                       {"num_attention_heads", config.integer("n_heads")},
                       {"num_hidden_layers", config.integer("n_layers")},
                       {"max_position_embeddings", config.integer("max_seq_len", 2048)},
                       {"tie_word_embeddings", true},
                       {"layer_norm_epsilon", 1e-5}});
  config.set_defaults({{"intermediate_size", 0}});
  for (const char* key : {"num_key_value_heads", "init_device", "logit_scale", "verbose",
                          "emb_pdrop", "learned_pos_emb", "init_config", "norm_type", "use_cache",
                          "tokenizer_name", "embedding_fraction", "init_config"}) {
    config.ignore(key);
  }
  if (!config.boolean("no_bias", true)) {
    config.fail("no_bias", "is false, which is not supported");
  }
  Descriptor decoder = dense_decoder(config);
  set_hidden(decoder, config.product("expansion_ratio", config.integer("expansion_ratio", 4),
                                     decoder.width));
  set_pre_norms(decoder, layer_norm(config, "layer_norm_epsilon"));
  set_plain_mlp(decoder);
  set_activation(decoder, layers::Activation::gelu_erf);
  TensorNames& names = decoder.names;
  names.embedding = "transformer.wte";
  names.final_norm = "transformer.norm_f";
  names.layers = "transformer.blocks.";
  names.qkv = {"attn.Wqkv"};
  names.attention_output = "attn.out_proj";
  names.mlp_input = {"ffn.up_proj"};
  names.mlp_down = "ffn.down_proj";
  names.attention_norm = "norm_1";
  names.mlp_norm = "norm_2";
  std::vector<float> slopes;
  const std::optional<ConfigReader> attention = config.object("attn_config");
  if (!attention) {
    config.fail("attn_config", "is missing");
  }
  for (const char* key : {"qk_ln", "prefix_lm", "attn_uses_sequence_id"}) {
    attention->require_off(key);
  }
  for (const char* key : {"attn_type", "attn_pdrop", "attn_impl", "model_type"}) {
    attention->ignore(key);
  }
  const int heads = config.integer("num_attention_heads");
  if (!attention->boolean("alibi", true)) {
    attention->fail("alibi", "is false, which is not supported");
  }
  slopes = mpt_slopes(heads, attention->number("alibi_bias_max", 8));
  for (LayerDescriptor& layer : decoder.layers) {
    AttentionDescriptor& part = layer.attention();
    part.kv_heads = heads;
    part.alibi_slopes = slopes;
    part.qkv_limit = static_cast<float>(attention->number("clip_qkv", 0));
    part.scale = static_cast<float>(attention->number("softmax_scale", part.scale));
  }
  return decoder;
}

}  // namespace espalier::models
