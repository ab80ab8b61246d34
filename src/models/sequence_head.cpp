#include "models/sequence_head.h"

#include <array>
#include <fstream>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/config_reader.h"
#include "models/json_file.h"

namespace espalier::models {
namespace {

using nlohmann::json;

ConfigReader read_object(const std::filesystem::path& path) {
  return ConfigReader(path.string(), read_json(path));
}

/// The keys that switch the kinds of pooling on, in the order in which vectors are joined.
constexpr std::array<std::pair<std::string_view, Pooling>, 5> pooling_keys = {
    {{"pooling_mode_cls_token", Pooling::first},
     {"pooling_mode_max_tokens", Pooling::max},
     {"pooling_mode_mean_tokens", Pooling::mean},
     {"pooling_mode_mean_sqrt_len_tokens", Pooling::mean_sqrt_length},
     {"pooling_mode_lasttoken", Pooling::last}}};

/// The newer spelling, one name or several.
constexpr std::array<std::pair<std::string_view, Pooling>, 5> pooling_names = {
    {{"cls", Pooling::first},
     {"max", Pooling::max},
     {"mean", Pooling::mean},
     {"mean_sqrt_len_tokens", Pooling::mean_sqrt_length},
     {"lasttoken", Pooling::last}}};

std::vector<Pooling> read_pooling(const std::filesystem::path& folder) {
  const ConfigReader config = read_object(folder / "config.json");
  std::vector<Pooling> pooling;
  for (const auto& [key, kind] : pooling_keys) {
    if (config.boolean(key, false)) {
      pooling.push_back(kind);
    }
  }
  if (config.is_string("pooling_mode")) {
    const std::string name = config.string("pooling_mode");
    for (const auto& [known, kind] : pooling_names) {
      if (name == known) {
        pooling.push_back(kind);
      }
    }
  }
  config.require_off("pooling_mode_weightedmean_tokens");
  config.ignore("word_embedding_dimension");
  config.ignore("embedding_dimension");
  if (!config.boolean("include_prompt", true)) {
    config.fail("include_prompt", "is false, which is not supported");
  }
  config.check_all_read();
  if (pooling.empty()) {
    config.fail("pooling_mode_mean_tokens", "and its like turn no supported pooling on");
  }
  return pooling;
}

DenseDescriptor read_dense(const std::filesystem::path& folder) {
  const ConfigReader config = read_object(folder / "config.json");
  const std::string activation =
      config.string("activation_function", "torch.nn.modules.activation.Tanh");
  const bool tanh = activation.ends_with(".Tanh");
  if (!tanh && !activation.ends_with(".Identity")) {
    config.fail("activation_function", "is '" + activation + "', which is not supported");
  }
  DenseDescriptor dense{.folder = folder.string(),
                        .inputs = config.integer("in_features"),
                        .outputs = config.integer("out_features"),
                        .bias = config.boolean("bias", true),
                        .tanh = tanh};
  config.ignore("module_input_name");
  config.ignore("module_output_name");
  config.check_all_read();
  return dense;
}

void read_limits(const std::filesystem::path& folder, EmbeddingDescriptor& embedding) {
  if (std::filesystem::exists(folder / "sentence_bert_config.json")) {
    const ConfigReader config = read_object(folder / "sentence_bert_config.json");
    if (config.contains("max_seq_length")) {
      embedding.most_tokens = config.integer("max_seq_length");
    }
  }
  const std::filesystem::path prompts = folder / "config_sentence_transformers.json";
  if (std::filesystem::exists(prompts)) {
    const json object = read_json(prompts);
    const json empty = json::object();
    const json named = object.is_object() ? object.value("prompts", empty) : empty;
    for (const auto& [name, text] : (named.is_object() ? named : empty).items()) {
      if (text.is_string()) {
        embedding.prompts[name] = text.get<std::string>();
      }
    }
    if (object.contains("default_prompt_name") && object["default_prompt_name"].is_string()) {
      embedding.default_prompt = object["default_prompt_name"].get<std::string>();
    }
  }
}

}  // namespace

std::optional<EmbeddingDescriptor> read_embedding(const std::filesystem::path& folder) {
  const std::filesystem::path list = folder / "modules.json";
  if (!std::filesystem::exists(list)) {
    return std::nullopt;
  }
  const json modules = read_json(list);
  if (!modules.is_array()) {
    throw base::LoadError(list.string() + ": expected a list of modules.");
  }
  EmbeddingDescriptor embedding;
  for (const json& module : modules) {
    const ConfigReader reader(list.string(), module);
    const std::string type = reader.string("type");
    const std::string kind = type.substr(type.rfind('.') + 1);
    const std::filesystem::path path = folder / reader.string("path", "");
    if (kind == "Pooling") {
      embedding.pooling = read_pooling(path);
    } else if (kind == "Dense") {
      embedding.dense.push_back(read_dense(path));
    } else if (kind == "Normalize") {
      embedding.normalize = true;
    } else if (kind != "Transformer") {
      throw base::LoadError(list.string() + ": the module '" + type + "' is not supported.");
    }
  }
  if (embedding.pooling.empty()) {
    throw base::LoadError(list.string() + ": no module pools.");
  }
  read_limits(folder, embedding);
  return embedding;
}

}  // namespace espalier::models
