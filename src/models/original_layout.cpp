#include "models/original_layout.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"

namespace espalier::models {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> renamed_keys = {{
    {"dim", "hidden_size"},
    {"n_layers", "num_hidden_layers"},
    {"n_heads", "num_attention_heads"},
    {"n_kv_heads", "num_key_value_heads"},
    {"head_dim", "head_dim"},
    {"hidden_dim", "intermediate_size"},
    {"norm_eps", "rms_norm_eps"},
    {"vocab_size", "vocab_size"},
    {"rope_theta", "rope_theta"},
}};

/// Keys that are read below, or say nothing about results.
constexpr std::array other_keys = {
    "multiple_of",     "ffn_dim_multiplier", "use_scaled_rope",
    "sliding_window",  "max_seq_len",        "max_position_embeddings",
    "tied_embeddings", "model_type",         "causal"};

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& key,
                       const std::string& reason) {
  throw base::LoadError(path.string() + ": '" + key + "' " + reason + ".");
}

/// Meta's rule for the width of the feed-forward part.
std::int64_t hidden_width(const json& params) {
  const auto dim = params.at("dim").get<std::int64_t>();
  auto hidden = 2 * (4 * dim) / 3;
  if (const auto factor = params.find("ffn_dim_multiplier"); factor != params.end()) {
    hidden = static_cast<std::int64_t>(factor->get<double>() * static_cast<double>(hidden));
  }
  const auto multiple = std::max<std::int64_t>(params.value("multiple_of", std::int64_t{256}), 1);
  return (hidden + multiple - 1) / multiple * multiple;
}

/// Llama 3.1 stretches its rotations by constants that its code holds.
const json llama3_scaling = {{"rope_type", "llama3"},
                             {"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 8192}};

}  // namespace

json config_of_params(const std::filesystem::path& path, const json& params) {
  if (!params.is_object()) {
    throw base::LoadError(path.string() + ": expected a JSON object.");
  }
  json config = {{"model_type", "llama"}, {"hidden_act", "silu"}};
  for (const auto& [key, value] : params.items()) {
    const auto* renamed =
        std::ranges::find(renamed_keys, key, &decltype(renamed_keys)::value_type::first);
    if (renamed != renamed_keys.end()) {
      config[std::string(renamed->second)] = value;
    } else if (std::ranges::find(other_keys, key) == other_keys.end()) {
      fail(path, key, "has no known meaning, and ignoring it might change the results");
    }
  }
  for (const char* key : {"dim", "n_layers", "n_heads", "vocab_size", "norm_eps"}) {
    if (!params.contains(key) || !params[key].is_number() || params[key] <= 0) {
      fail(path, key, "is missing or no positive number");
    }
  }
  if (!params.contains("hidden_dim")) {
    config["intermediate_size"] = hidden_width(params);
  }
  if (params.value("use_scaled_rope", false)) {
    config["rope_scaling"] = llama3_scaling;
  }
  if (params.contains("sliding_window") && !params["sliding_window"].is_null()) {
    config["model_type"] = "mistral";
    config["sliding_window"] = params["sliding_window"];
  }
  const int trained = params.value("use_scaled_rope", false) ? 131072 : 32768;
  config["max_position_embeddings"] =
      params.value("max_position_embeddings", params.value("max_seq_len", trained));
  config["tie_word_embeddings"] = params.value("tied_embeddings", false);
  config["dtype"] = "bfloat16";
  return config;
}

void set_original_layout(Descriptor& decoder) {
  TensorNames& names = decoder.names;
  names.embedding = "tok_embeddings";
  names.final_norm = "norm";
  names.head = "output";
  names.layers = "layers.";
  names.qkv = {"attention.wq", "attention.wk", "attention.wv"};
  names.attention_output = "attention.wo";
  names.mlp_input = {"feed_forward.w1", "feed_forward.w3"};
  names.mlp_down = "feed_forward.w2";
  names.attention_norm = "attention_norm";
  names.mlp_norm = "ffn_norm";
  for (LayerDescriptor& layer : decoder.layers) {
    auto* attention = std::get_if<AttentionDescriptor>(&layer.mixer);
    if (attention != nullptr && attention->rope) {
      attention->rope->interleaved = true;
    }
  }
}

}  // namespace espalier::models
