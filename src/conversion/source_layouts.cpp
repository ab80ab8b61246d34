#include "conversion/source_layouts.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "conversion/layout.h"
#include "models/original_layout.h"
#include "tokenizer/json_file.h"

namespace espalier::conversion {
namespace {

namespace fs = std::filesystem;
using base::LoadError;

constexpr const char* params_name = "params.json";

/// Replaces one part of a name; false when it is not there.
bool replace(std::string& name, std::string_view part, std::string_view by) {
  const auto place = name.find(part);
  if (place == std::string::npos) return false;
  name.replace(place, part.size(), by);
  return true;
}

}  // namespace

bool is_original_layout(const fs::path& folder) {
  return !fs::exists(folder / "config.json") && fs::exists(folder / params_name);
}

void use_hugging_face_layout(Source& source) {
  const fs::path path = source.path / params_name;
  const auto params = nlohmann::json::parse(tokenizer::read_text_file(path), nullptr, false);
  if (params.is_discarded()) throw LoadError(path.string() + " is not valid JSON");
  const nlohmann::json config = models::config_of_params(path, params);
  const Layout& layout = *find_layout_of_model_type(config.at("model_type").get<std::string>());
  const int heads = config.at("num_attention_heads");
  source.config = config;
  source.config["architectures"] = nlohmann::ordered_json::array({layout.class_name});
  source.tensors = from_original_layout(layout, {heads, config.value("num_key_value_heads", heads)},
                                        std::move(source.tensors), source.path.string());
}

void part_packed_experts(Source& source) {
  constexpr std::string_view fused = "gate_up_proj";
  constexpr std::array<std::string_view, 2> parts = {"gate_proj", "up_proj"};
  const auto is_packed = [](const SourceTensor& tensor) {
    return tensor.name().ends_with(".experts.gate_up_proj.weight");
  };
  const auto type = source.config.find("model_type");
  if (type == source.config.end() || *type != "gpt_oss" ||
      std::ranges::none_of(source.tensors, is_packed)) {
    return;
  }
  std::vector<SourceTensor> tensors;
  for (SourceTensor& tensor : source.tensors) {
    std::string name = tensor.name();
    const bool is_bias = replace(name, "_proj_bias", "_proj.bias");
    if (name.find(fused) == std::string::npos) {
      tensor.rename(std::move(name));
      tensors.push_back(std::move(tensor));
      continue;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      SourceTensor part = tensor;
      std::string part_name = name;
      replace(part_name, fused, parts[i]);
      part.rename(std::move(part_name));
      // The rows are those of every expert, which are even in number.
      part.keep_alternate(tensor.shape().size() - (is_bias ? 1 : 2), static_cast<std::int64_t>(i));
      tensors.push_back(std::move(part));
    }
  }
  source.tensors = std::move(tensors);
}

}  // namespace espalier::conversion
