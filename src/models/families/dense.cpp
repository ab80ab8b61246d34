#include "models/families/dense.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"

namespace espalier::models {
namespace {

TensorNames hugging_face_names() {
  return {.embedding = "model.embed_tokens",
          .final_norm = "model.norm",
          .head = "lm_head",
          .layers = "model.layers.",
          .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          .attention_output = "self_attn.o_proj",
          .q_norm = "self_attn.q_norm",
          .k_norm = "self_attn.k_norm",
          .mlp_input = {"mlp.gate_proj", "mlp.up_proj"},
          .mlp_down = "mlp.down_proj",
          .attention_norm = "input_layernorm",
          .attention_post_norm = "post_attention_layernorm",
          .mlp_norm = "post_attention_layernorm",
          .mlp_post_norm = "post_feedforward_layernorm"};
}

/// By the names that transformers has for them.
struct NamedActivation {
  std::string_view name;
  layers::Activation activation;
};

constexpr std::array activations = {
    NamedActivation{"gelu", layers::Activation::gelu_erf},
    NamedActivation{"gelu_accurate", layers::Activation::gelu_tanh},
    NamedActivation{"gelu_fast", layers::Activation::gelu_tanh},
    NamedActivation{"gelu_new", layers::Activation::gelu_tanh},
    NamedActivation{"gelu_python", layers::Activation::gelu_erf},
    NamedActivation{"gelu_python_tanh", layers::Activation::gelu_tanh},
    NamedActivation{"gelu_pytorch_tanh", layers::Activation::gelu_tanh},
    NamedActivation{"quick_gelu", layers::Activation::gelu_quick},
    NamedActivation{"relu", layers::Activation::relu},
    NamedActivation{"relu2", layers::Activation::relu_squared},
    NamedActivation{"sigmoid", layers::Activation::sigmoid},
    NamedActivation{"silu", layers::Activation::silu},
    NamedActivation{"swish", layers::Activation::silu},
    NamedActivation{"tanh", layers::Activation::tanh},
    NamedActivation{"xielu", layers::Activation::xielu},
};

void check(bool holds, const std::string& path, const std::string& what) {
  if (!holds) {
    throw base::LoadError(path + ": " + what + ".");
  }
}

/// Families keep numbers for each of them.
constexpr int most_heads = 1 << 16;

/// The sizes must be positive and the heads divide into groups.
void check_sizes(const AttentionDescriptor& attention, const Descriptor& decoder, int layer_count,
                 const std::string& path) {
  check(decoder.width > 0 && decoder.vocabulary > 0 && decoder.context > 0 && layer_count > 0, path,
        "the model has a size of zero");
  check(attention.heads <= most_heads, path,
        std::to_string(attention.heads) + " attention heads are more than a model can have");
  check(attention.heads > 0 && attention.kv_heads > 0 && attention.head_dim > 0 &&
            attention.heads % attention.kv_heads == 0,
        path,
        std::to_string(attention.heads) + " attention heads do not divide among " +
            std::to_string(attention.kv_heads) + " key-value heads");
}

LayerDescriptor dense_layer(const AttentionDescriptor& attention, int hidden) {
  return {.mixer = attention, .feed_forward = MlpDescriptor{.hidden = hidden}};
}

}  // namespace

TensorNames gguf_names() {
  return {.embedding = "token_embd",
          .final_norm = "output_norm",
          .head = "output",
          .layers = "blk.",
          .qkv = {"attn_q", "attn_k", "attn_v"},
          .attention_output = "attn_output",
          .q_norm = "attn_q_norm",
          .k_norm = "attn_k_norm",
          .mlp_input = {"ffn_gate", "ffn_up"},
          .mlp_down = "ffn_down",
          .attention_norm = "attn_norm",
          .attention_post_norm = "post_attention_norm",
          .mlp_norm = "ffn_norm",
          .mlp_post_norm = "post_ffw_norm"};
}

Descriptor dense_decoder(ConfigReader& config) {
  const int width = config.integer("hidden_size");
  const int heads = config.integer("num_attention_heads");
  const int layer_count = config.integer("num_hidden_layers");
  check(heads > 0, config.path(), "the model has no attention heads");
  const int head_dim = config.integer("head_dim", width / heads);
  const AttentionDescriptor attention{.heads = heads,
                                      .kv_heads = config.integer("num_key_value_heads", heads),
                                      .head_dim = head_dim,
                                      .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
  Descriptor decoder{.family = config.string("model_type"),
                     .vocabulary = config.integer("vocab_size"),
                     .width = width,
                     .context = config.integer("max_position_embeddings"),
                     .tied_head = config.boolean("tie_word_embeddings", false),
                     .names = hugging_face_names()};
  if (config.boolean("rotated_embedding", false)) {
    decoder.embedding_width = width;
    decoder.names.embedding_output = "model.rotation_in";
    decoder.names.head_input = "model.rotation_out";
  }
  check_sizes(attention, decoder, layer_count, config.path());
  for (const int token : config.integers("eos_token_id")) {
    decoder.end_tokens.push_back(token);
  }
  decoder.layers.assign(static_cast<std::size_t>(layer_count),
                        dense_layer(attention, config.integer("intermediate_size")));
  return decoder;
}

Descriptor dense_decoder(const GgufReader& file) {
  const int width = file.integer("embedding_length");
  const int heads = file.integer("attention.head_count");
  const int layer_count = file.integer("block_count");
  check(heads > 0, file.path(), "the model has no attention heads");
  const int head_dim = file.integer("attention.key_length", width / heads);
  check(file.integer("attention.value_length", head_dim) == head_dim, file.path(),
        "keys and values of different length are not supported");
  const AttentionDescriptor attention{.heads = heads,
                                      .kv_heads = file.integer("attention.head_count_kv", heads),
                                      .head_dim = head_dim,
                                      .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
  const TensorNames names = gguf_names();
  Descriptor decoder{.family = file.architecture(),
                     .vocabulary = file.tensor_rows(names.embedding + ".weight"),
                     .width = width,
                     .context = file.integer("context_length"),
                     .tied_head = !file.has_tensor(names.head + ".weight"),
                     .end_tokens = file.end_tokens(),
                     .names = names};
  check_sizes(attention, decoder, layer_count, file.path());
  decoder.layers.assign(static_cast<std::size_t>(layer_count),
                        dense_layer(attention, file.integer("feed_forward_length")));
  return decoder;
}

NormDescriptor rms_norm(const ConfigReader& config, std::string_view key) {
  return {.eps = static_cast<float>(config.number(key))};
}

NormDescriptor rms_norm(const GgufReader& file) {
  return {.eps = static_cast<float>(file.number("attention.layer_norm_rms_epsilon"))};
}

NormDescriptor layer_norm(const ConfigReader& config, std::string_view key) {
  return {.kind = NormDescriptor::Kind::layer, .eps = static_cast<float>(config.number(key))};
}

layers::Activation read_activation(const ConfigReader& config, std::string_view key) {
  const std::string name = config.string(key);
  const auto* found = std::ranges::find(activations, name, &NamedActivation::name);
  if (found == activations.end()) {
    config.fail(key, "is '" + name + "', which is not supported");
  }
  return found->activation;
}

void set_pre_norms(Descriptor& decoder, const NormDescriptor& norm) {
  decoder.final_norm = norm;
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention_norm = norm;
    layer.mlp_norm = norm;
  }
}

void set_post_norms_only(Descriptor& decoder, const NormDescriptor& norm) {
  decoder.final_norm = norm;
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention_norm.reset();
    layer.mlp_norm.reset();
    layer.attention_post_norm = norm;
    layer.mlp_post_norm = norm;
  }
}

void set_activation(Descriptor& decoder, layers::Activation activation) {
  for (LayerDescriptor& layer : decoder.layers) {
    layer.mlp().activation = activation;
  }
}

void set_plain_mlp(Descriptor& decoder) {
  decoder.names.mlp_input = {"mlp.up_proj"};
  for (LayerDescriptor& layer : decoder.layers) {
    layer.mlp().gated = false;
  }
}

void set_attention_bias(Descriptor& decoder, bool bias) {
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qkv_bias = bias;
    layer.attention().output_bias = bias;
  }
}

void set_mlp_bias(Descriptor& decoder, bool bias) {
  for (LayerDescriptor& layer : decoder.layers) {
    layer.mlp().bias = bias;
  }
}

void set_windows(Descriptor& decoder, const std::vector<bool>& sliding, int window) {
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    decoder.layers[i].attention().window = sliding[i] ? window : 0;
  }
}

void set_qk_norm(Descriptor& decoder) {
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().qk_norm = QkNormDescriptor{.norm = decoder.final_norm};
  }
}

void set_rope(Descriptor& decoder, const RopeSettings& settings, bool interleaved) {
  const int head_dim = decoder.layers.front().attention().head_dim;
  const RopeDescriptor rope = make_rope(settings, rotated_dims(settings, head_dim), interleaved);
  for (LayerDescriptor& layer : decoder.layers) {
    layer.attention().rope = rope;
  }
  if (settings.context_limit) {
    decoder.context = *settings.context_limit;
  }
}

std::vector<bool> every_nth_full(std::size_t layers, int pattern) {
  std::vector<bool> sliding(layers);
  for (std::size_t i = 0; i < layers && pattern > 0; ++i) {
    sliding[i] = (i + 1) % static_cast<std::size_t>(pattern) != 0;
  }
  return sliding;
}

std::vector<bool> all_but_each_first(std::size_t layers, int interval) {
  std::vector<bool> sliding(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    sliding[i] = i % static_cast<std::size_t>(interval) != 0;
  }
  return sliding;
}

std::vector<bool> sliding_layers(const ConfigReader& config, int pattern) {
  const int layer_count = config.integer("num_hidden_layers");
  const std::vector<std::string> types = config.strings("layer_types");
  std::vector<bool> sliding = every_nth_full(static_cast<std::size_t>(layer_count), pattern);
  if (types.empty()) {
    return sliding;
  }
  if (types.size() != sliding.size()) {
    config.fail("layer_types", "has " + std::to_string(types.size()) + " entries for " +
                                   std::to_string(layer_count) + " layers");
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "full_attention" && types[i] != "sliding_attention") {
      config.fail("layer_types", "names '" + types[i] + "', which is not supported");
    }
    sliding[i] = types[i] == "sliding_attention";
  }
  return sliding;
}

}  // namespace espalier::models
