#include "conversion/source.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "arrays/safetensors.h"
#include "arrays/tensor_index.h"
#include "base/error.h"
#include "conversion/scheme_tensors.h"
#include "conversion/source_layouts.h"
#include "quantization/mxfp4_blocks.h"
#include "tokenizer/json_file.h"

namespace espalier::conversion {
namespace {

using base::LoadError;
using nlohmann::ordered_json;
using quantization::MlxFormat;

/// What `quantization` of an MLX checkpoint's config.json says, layer by layer.
class MlxSettings {
 public:
  MlxSettings(const ordered_json& settings, std::string path)
      : settings_(settings), path_(std::move(path)) {}

  /// The format of the layer of this name.
  MlxFormat format(const std::string& layer) const {
    const auto own = settings_.find(layer);
    // A layer with settings of its own has none of the others'.
    const ordered_json& settings = own != settings_.end() && own->is_object() ? *own : settings_;
    const auto value = [&](const char* key) -> const ordered_json* {
      return settings.contains(key) ? &settings[key] : nullptr;
    };
    MlxFormat format;
    if (const auto* mode = value("mode")) {
      if (!mode->is_string()) fail(layer);
      try {
        format.mode = parse_mode(mode->get<std::string>());
      } catch (const base::UsageError& error) {
        throw LoadError(path_ + ": the quantization of " + layer +
                        " is not known: " + error.what());
      }
      format = quantization::mlx_float_format(format.mode);
    }
    if (const auto* bits = value("bits")) format.bits = number(*bits, layer);
    if (const auto* group = value("group_size")) format.group = number(*group, layer);
    if (!quantization::is_mlx_format(format)) fail(layer);
    return format;
  }

 private:
  [[noreturn]] void fail(const std::string& layer) const {
    throw LoadError(path_ + ": the quantization of " + layer + " is none that MLX has");
  }
  int number(const ordered_json& value, const std::string& layer) const {
    if (!value.is_number_integer()) fail(layer);
    return value.get<int>();
  }

  const ordered_json& settings_;
  std::string path_;
};

/// What config.json says of the weights' quantization; an object without keys when nothing.
struct Settings {
  ordered_json values = ordered_json::object();
  bool of_mlx = true;
};

/// Takes the settings out of the configuration. MLX writes them under two keys.
Settings take_quantization(ordered_json& config) {
  Settings settings;
  for (const char* key : {"quantization_config", "quantization"}) {
    const auto found = config.find(key);
    if (found == config.end()) continue;
    if (found->is_object()) settings.values = *found;
    settings.of_mlx =
        std::string_view(key) == "quantization" || !settings.values.contains("quant_method");
    if (!settings.of_mlx && settings.values["quant_method"] == "mxfp4") {
      settings = {.values = {{"mode", "mxfp4"}}};
    }
    config.erase(key);
  }
  return settings;
}

/// Whether a file holds weights of schemes that tensors alone tell, as loading has it.
bool has_scheme_tensors(const arrays::TensorFile& file) {
  constexpr auto suffixes = std::to_array<std::string_view>(
      {".weight_scale", ".weight_scale_inv", ".weight_packed", ".qweight", ".weight.absmax"});
  return std::ranges::any_of(file.tensors(), [&](const arrays::TensorView& tensor) {
    return std::ranges::any_of(
        suffixes, [&](std::string_view suffix) { return tensor.name.ends_with(suffix); });
  });
}

void add_folder_tensors(Source& source, const ordered_json& settings) {
  const std::string config_path = (source.path / "config.json").string();
  const MlxSettings mlx(settings, config_path);
  std::set<std::string> taken;
  for (const arrays::TensorView& tensor : source.file->tensors()) {
    const std::string& name = tensor.name;
    const bool is_weight = name.ends_with(weight_suffix);
    const std::string layer = name.substr(0, name.size() - (is_weight ? weight_suffix.size() : 0));
    const auto* scales = is_weight ? source.file->find(layer + ".scales") : nullptr;
    if (scales == nullptr) continue;
    if (settings.empty()) {
      throw LoadError(config_path + " does not say how tensor " + arrays::shown_name(name) +
                      " is quantized");
    }
    taken.insert(scales->name);
    const auto* biases = source.file->find(layer + ".biases");
    if (biases != nullptr) taken.insert(biases->name);
  }
  for (const arrays::TensorView& tensor : source.file->tensors()) {
    if (taken.contains(tensor.name)) continue;
    const std::string layer = tensor.name.substr(
        0, tensor.name.size() - std::min(tensor.name.size(), weight_suffix.size()));
    const auto* scales =
        tensor.name.ends_with(weight_suffix) ? source.file->find(layer + ".scales") : nullptr;
    if (scales == nullptr) {
      source.tensors.emplace_back(source.file, tensor);
      continue;
    }
    const auto* biases = source.file->find(layer + ".biases");
    source.tensors.emplace_back(
        source.file, mlx.format(layer), tensor, *scales,
        biases == nullptr ? std::nullopt : std::optional<arrays::TensorView>(*biases));
  }
}

/// The layers of some families lie [inputs, outputs].
void mark_transposed(Source& source) {
  constexpr auto families =
      std::to_array<std::pair<std::string_view, std::string_view>>({{"aria", ".experts.fc"},
                                                                    {"aria_text", ".experts.fc"},
                                                                    {"gpt-sw3", ".c_"},
                                                                    {"gpt2", ".c_"},
                                                                    {"openai-gpt", ".c_"}});
  const auto type = source.config.find("model_type");
  if (type == source.config.end() || !type->is_string()) return;
  const auto* family = std::ranges::find_if(
      families, [&](const auto& each) { return type->get<std::string>() == each.first; });
  if (family == families.end()) return;
  for (SourceTensor& tensor : source.tensors) {
    if (tensor.name().find(family->second) != std::string::npos) tensor.mark_transposed();
  }
}

}  // namespace

Source open_source(const std::filesystem::path& path) {
  Source source;
  source.path = path;
  if (!std::filesystem::is_directory(path)) {
    source.gguf = arrays::GgufFile::open(path);
    source.file = source.gguf;
    for (const arrays::TensorView& tensor : source.file->tensors()) {
      source.tensors.emplace_back(source.file, tensor);
    }
    return source;
  }
  source.file = quantization::name_mxfp4_as_mlx(arrays::open_safetensors_folder(path));
  if (is_original_layout(path)) {
    add_folder_tensors(source, ordered_json::object());
    use_hugging_face_layout(source);
    return source;
  }
  const auto config_path = path / "config.json";
  source.config = ordered_json::parse(tokenizer::read_text_file(config_path), nullptr, false);
  if (!source.config.is_object()) throw LoadError(config_path.string() + " is no JSON object");
  const Settings settings = take_quantization(source.config);
  if (settings.of_mlx && !(settings.values.empty() && has_scheme_tensors(*source.file))) {
    add_folder_tensors(source, settings.values);
  } else {
    add_scheme_tensors(source, settings.values);
  }
  mark_transposed(source);
  part_packed_experts(source);
  return source;
}

}  // namespace espalier::conversion
