#include "conversion/folder_plan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "arrays/tensor_index.h"
#include "base/error.h"
#include "conversion/fold.h"
#include "conversion/gguf_settings.h"
#include "models/audit.h"
#include "models/config_reader.h"
#include "models/inspect.h"
#include "models/registry.h"
#include "models/sequence_model.h"

namespace espalier::conversion {
namespace {

using arrays::StorageType;
using base::LoadError;
using nlohmann::ordered_json;

/// That of the format's published checkpoints.
constexpr std::uint32_t default_rotation_seed = 42;

void set_dtype(ordered_json& config, StorageType dtype) {
  const char* key = config.contains("dtype") ? "dtype" : "torch_dtype";
  config[key] = dtype_name(dtype);
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) {
    for (const char* own : {"dtype", "torch_dtype"}) {
      if (text->contains(own)) (*text)[own] = dtype_name(dtype);
    }
  }
}

/// What `rope_scaling` held before transformers 5.
bool is_old_scaling(const ordered_json& scaling) {
  constexpr std::array<std::string_view, 13> keys = {
      "rope_type",        "factor",
      "low_freq_factor",  "high_freq_factor",
      "beta_fast",        "beta_slow",
      "mscale",           "mscale_all_dim",
      "attention_factor", "original_max_position_embeddings",
      "short_factor",     "long_factor",
      "truncate"};
  for (const auto& [key, value] : scaling.items()) {
    if (std::ranges::find(keys, key) == keys.end()) return false;
  }
  return true;
}

/// mlx-lm's older models, and transformers before version 5, know RoPE's settings by older names
/// only. Settings that differ by kind of layer, and some newer ones, have none.
void name_rope_as_before(ordered_json& config) {
  const auto found = config.find("rope_parameters");
  if (found == config.end() || !found->is_object() || !found->contains("rope_theta")) return;
  if (config.contains("rope_theta") || config.contains("rope_scaling")) return;
  ordered_json scaling = *found;
  ordered_json beside = ordered_json::object();
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    if (!scaling.contains(key)) continue;
    beside[key] = scaling[key];
    scaling.erase(key);
  }
  if (!is_old_scaling(scaling)) return;
  config.update(beside);
  const auto type = scaling.find("rope_type");
  if (type != scaling.end() && *type != "default") config["rope_scaling"] = scaling;
}

/// Whether a model has a head of its own whatever its settings say, as Kimi Linear has.
bool keeps_its_head(const ordered_json& config) {
  try {
    models::ConfigReader reader("config.json", nlohmann::json(config));
    return !models::describe_model(reader).tied_head;
  } catch (const LoadError&) {
    return false;  // the settings are not of a text model alone
  }
}

/// Folds a rotation into all but models that give vectors: theirs would be rotated.
void rotate(ordered_json& config, std::vector<SourceTensor>& tensors, std::uint32_t seed,
            const std::filesystem::path& path) {
  if (models::is_sequence_model(path)) {
    throw LoadError(path.string() +
                    ": a rotation cannot be folded into a model that gives vectors or scores");
  }
  fold_rotation(config, tensors, seed, path.string());
}

void rotate_where_exact(ordered_json& config, std::vector<SourceTensor>& tensors,
                        const std::filesystem::path& path, std::vector<std::string>& notes) {
  ordered_json rotated_config = config;
  std::vector<SourceTensor> rotated = tensors;
  try {
    rotate(rotated_config, rotated, default_rotation_seed, path);
  } catch (const LoadError& error) {
    notes.push_back(std::string("weights are not rotated: ") + error.what());
    return;
  }
  config = std::move(rotated_config);
  tensors = std::move(rotated);
}

}  // namespace

std::uint64_t stored_bytes(const PlannedTensor& tensor) {
  std::uint64_t bytes = 0;
  for (const StoredPart& part : stored_parts(tensor)) {
    bytes += arrays::tensor_bytes(part.type, part.shape).value_or(0);
  }
  return bytes;
}

const Layout& layout_of(const Source& source) {
  if (source.gguf) {
    const std::string name = source.gguf->metadata().require_string("general.architecture");
    if (const Layout* layout = find_layout_of_architecture(name)) return *layout;
    throw LoadError(source.path.string() + ": GGUF files of architecture " + name +
                    " cannot become safetensors; these can: " + known_architectures());
  }
  const auto type = source.config.find("model_type");
  const bool named = type != source.config.end() && type->is_string();
  const std::string name = named ? type->get<std::string>() : "";
  if (const Layout* layout = find_layout_of_model_type(name)) return *layout;
  throw LoadError(source.path.string() + ": models of type " + name +
                  " cannot become GGUF; these can: " + known_model_types());
}

void drop_tied_head(const ordered_json& config, std::vector<SourceTensor>& tensors) {
  if (!config.value("tie_word_embeddings", false) || keeps_its_head(config)) return;
  std::erase_if(tensors,
                [](const SourceTensor& tensor) { return tensor.name() == "lm_head.weight"; });
}

void drop_unread(const Source& source, std::vector<SourceTensor>& tensors,
                 std::vector<std::string>& notes) {
  const models::Descriptor descriptor = models::inspect_model(source.path).descriptor;
  std::erase_if(tensors, [&](const SourceTensor& tensor) {
    const std::string_view reason = tensor.elements() == 0
                                        ? std::string_view("it holds nothing")
                                        : models::reason_to_ignore(tensor.name(), descriptor);
    if (reason.empty()) return false;
    notes.push_back(tensor.name() + " is left out: " + std::string(reason));
    return true;
  });
}

FolderPlan prepare_folder(const Source& source, const ConvertOptions& options) {
  std::vector<SourceTensor> tensors = source.tensors;
  ordered_json config = source.config;
  const bool from_gguf = source.gguf != nullptr;
  std::vector<std::string> notes;
  if (from_gguf) {
    drop_unread(source, tensors, notes);
    const Layout& layout = layout_of(source);
    HuggingFaceSettings settings = hugging_face_settings(source, layout);
    config = std::move(settings.config);
    tensors =
        to_hugging_face_layout(layout, settings.heads, std::move(tensors), source.path.string());
  }
  drop_tied_head(config, tensors);
  name_rope_as_before(config);
  if (options.rotation_seed) {
    rotate(config, tensors, *options.rotation_seed, source.path);
  } else if (options.rotate_where_exact) {
    rotate_where_exact(config, tensors, source.path, notes);
  }
  if (options.dtype || from_gguf) set_dtype(config, options.dtype.value_or(StorageType::bf16));
  Plan plan = plan_folder(std::move(tensors), options, from_gguf);
  std::ranges::move(notes, std::back_inserter(plan.notes));
  return {std::move(config), std::move(plan)};
}

}  // namespace espalier::conversion
