#include "models/checkpoint.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "models/json_file.h"

namespace espalier::models {
namespace {

/// Python writes a bare Infinity, which JSON does not have; transformers 5 writes an object
/// instead.
std::string spell_out_infinity(const std::string& text) {
  constexpr std::string_view bare = "Infinity";
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!quoted && text.compare(i, bare.size(), bare) == 0) {
      result += R"({"__float__": "Infinity"})";
      i += bare.size() - 1;
      continue;
    }
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      result += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    }
    result += text[i];
  }
  return result;
}

/// Models that see or hear, around a text model with settings of its own: `model_type` of the
/// whole.
constexpr auto wrappers = std::to_array<std::string_view>({"aria",
                                                           "audioflamingo3",
                                                           "aya_vision",
                                                           "cohere2_vision",
                                                           "exaone4_5",
                                                           "fast_vlm",
                                                           "gemma3",
                                                           "gemma3n",
                                                           "gemma4",
                                                           "gemma4_unified",
                                                           "glm4v",
                                                           "glm4v_moe",
                                                           "got_ocr2",
                                                           "granite4_vision",
                                                           "granite_speech",
                                                           "idefics3",
                                                           "internvl",
                                                           "lfm2_vl",
                                                           "lighton_ocr",
                                                           "llama4",
                                                           "llava",
                                                           "llava_next",
                                                           "llava_next_video",
                                                           "llava_onevision",
                                                           "mistral3",
                                                           "ovis2",
                                                           "perception_lm",
                                                           "qwen2_5_omni",
                                                           "qwen2_5_omni_thinker",
                                                           "qwen2_5_vl",
                                                           "qwen2_audio",
                                                           "qwen2_vl",
                                                           "qwen3_5",
                                                           "qwen3_5_moe",
                                                           "qwen3_omni_moe",
                                                           "qwen3_omni_moe_thinker",
                                                           "qwen3_vl",
                                                           "qwen3_vl_moe",
                                                           "smolvlm",
                                                           "video_llava",
                                                           "vipllava",
                                                           "voxtral"});

/// What transformers 4 leaves out of a text model's settings inside others, being its default.
nlohmann::json nested_defaults(const std::string& type) {
  nlohmann::json defaults = {{"hidden_size", 4096},
                             {"num_hidden_layers", 32},
                             {"num_attention_heads", 32},
                             {"rms_norm_eps", 1e-6},
                             {"hidden_act", "silu"}};
  if (type == "llama") {
    defaults.update(
        {{"intermediate_size", 11008}, {"vocab_size", 32000}, {"max_position_embeddings", 2048}});
  } else if (type == "mistral") {
    defaults.update({{"intermediate_size", 14336},
                     {"vocab_size", 32000},
                     {"num_key_value_heads", 8},
                     {"max_position_embeddings", 131072}});
  } else if (type == "qwen2") {
    defaults.update({{"intermediate_size", 22016},
                     {"vocab_size", 151936},
                     {"num_key_value_heads", 32},
                     {"max_position_embeddings", 32768}});
  } else {
    return nlohmann::json::object();
  }
  return defaults;
}

/// The settings of the text model, with those that are said of the whole.
nlohmann::json unwrap_text(nlohmann::json config) {
  const auto thinker = config.find("thinker_config");
  if (config.is_object() && thinker != config.end() && thinker->is_object()) {
    config = nlohmann::json(*thinker);
  }
  if (!config.is_object() || !config.contains("text_config")) {
    return config;
  }
  const nlohmann::json type = config.value("model_type", nlohmann::json());
  if (!type.is_string() || std::ranges::find(wrappers, type.get<std::string>()) == wrappers.end()) {
    return config;
  }
  nlohmann::json text = config["text_config"];
  if (!text.is_object()) {
    return config;
  }
  for (const char* key : {"quantization", "quantization_config", "tie_word_embeddings"}) {
    if (config.contains(key)) {
      text[key] = config[key];
    }
  }
  for (const char* key : {"dtype", "torch_dtype", "eos_token_id"}) {
    if (config.contains(key)) {
      text.emplace(key, config[key]);
    }
  }
  if (!text.contains("model_type")) {
    text["model_type"] = "llama";  // LLaVA's first text model
  }
  if (const nlohmann::json& inner = text["model_type"]; inner.is_string()) {
    const nlohmann::json defaults = nested_defaults(inner.get<std::string>());
    for (const auto& [key, value] : defaults.items()) {
      text.emplace(key, value);
    }
  }
  return text;
}

}  // namespace

ConfigReader open_config(const std::filesystem::path& path) {
  return ConfigReader(path.string(),
                      unwrap_text(parse_json(spell_out_infinity(read_text(path)), path)));
}

}  // namespace espalier::models
