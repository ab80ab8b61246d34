#include "conversion/convert.h"

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "arrays/tensor_index.h"
#include "base/error.h"
#include "base/output_file.h"
#include "conversion/gguf_settings.h"
#include "conversion/layout.h"
#include "conversion/plan.h"
#include "conversion/source.h"
#include "conversion/staging_folder.h"
#include "conversion/targets.h"
#include "conversion/tokenizer_files.h"

namespace espalier::conversion {
namespace {

namespace fs = std::filesystem;

using arrays::StorageType;
using base::LoadError;
using base::UsageError;
using nlohmann::ordered_json;

constexpr std::int64_t progress_unit = 1'000'000;
constexpr std::uint64_t megabyte = 1'000'000;

/// Files of a checkpoint folder that are neither weights nor written anew.
bool goes_along(const fs::path& file) {
  constexpr std::array<std::string_view, 7> extensions = {".json", ".jinja", ".model",   ".txt",
                                                          ".py",   ".md",    ".tiktoken"};
  const std::string name = file.filename().string();
  if (name == "config.json" || name.ends_with(".index.json")) return false;
  return name.starts_with("LICENSE") ||
         std::ranges::find(extensions, file.extension().string()) != extensions.end();
}

void copy_companions(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.is_regular_file() && goes_along(entry.path())) {
      fs::copy_file(entry.path(), to / entry.path().filename());
    }
  }
  const fs::path templates = "additional_chat_templates";
  if (fs::is_directory(from / templates)) {
    fs::copy(from / templates, to / templates, fs::copy_options::recursive);
  }
}

void write_json(const fs::path& path, const ordered_json& value) {
  const std::string text = value.dump(2) + "\n";
  base::OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.publish(base::OutputFile::Existing::replace);
}

std::uint64_t stored_bytes(const PlannedTensor& tensor) {
  std::uint64_t bytes = 0;
  for (const StoredPart& part : stored_parts(tensor)) {
    bytes += arrays::tensor_bytes(part.type, part.shape).value_or(0);
  }
  return bytes;
}

ConvertReport report_of(const Plan& plan) {
  ConvertReport report;
  report.notes = plan.notes;
  for (const PlannedTensor& tensor : plan.tensors) {
    ++report.tensors;
    ++report.encodings[to_string(tensor.target)];
    report.values += tensor.source.elements();
    report.bytes += stored_bytes(tensor);
  }
  report.bits_per_weight = 8.0 * static_cast<double>(report.bytes) /
                           static_cast<double>(std::max<std::int64_t>(report.values, 1));
  return report;
}

/// Refuses before any work what would end in a full disk.
void check_space(const fs::path& destination, std::uint64_t needed) {
  std::error_code error;
  const fs::space_info space = fs::space(destination.parent_path(), error);
  if (error) {
    throw std::runtime_error("cannot write " + destination.string() + ": " + error.message());
  }
  if (space.available >= needed) return;
  throw std::runtime_error("cannot write " + destination.string() + ": it needs " +
                           std::to_string(needed / megabyte + 1) + " MB and only " +
                           std::to_string(space.available / megabyte) + " MB are free");
}

/// Counts values and passes on what a person wants to see.
StreamControl stream_control(const ConvertOptions& options, std::int64_t total) {
  StreamControl control{.cancelled = options.cancelled};
  if (!options.progress) return control;
  const int end = static_cast<int>((total + progress_unit - 1) / progress_unit);
  // The function is copied along; the count must not be.
  control.advanced = [&options, end,
                      done = std::make_shared<std::int64_t>(0)](std::int64_t values) {
    const auto before = static_cast<int>(*done / progress_unit);
    *done += values;
    const auto now = static_cast<int>(*done / progress_unit);
    if (now > before) options.progress(now, std::max(end, now));
  };
  return control;
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

/// A head that is the embedding again, which readers would have no use for.
void drop_tied_head(const ordered_json& config, std::vector<SourceTensor>& tensors) {
  if (!config.value("tie_word_embeddings", false)) return;
  std::erase_if(tensors,
                [](const SourceTensor& tensor) { return tensor.name() == "lm_head.weight"; });
}

void set_dtype(ordered_json& config, StorageType dtype) {
  const char* key = config.contains("dtype") ? "dtype" : "torch_dtype";
  config[key] = dtype_name(dtype);
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

ConvertReport to_folder(const Source& source, const ConvertOptions& options) {
  std::vector<SourceTensor> tensors = source.tensors;
  ordered_json config = source.config;
  if (source.gguf) {
    const Layout& layout = layout_of(source);
    HuggingFaceSettings settings = hugging_face_settings(source, layout);
    config = std::move(settings.config);
    tensors =
        to_hugging_face_layout(layout, settings.heads, std::move(tensors), source.path.string());
  }
  drop_tied_head(config, tensors);
  name_rope_as_before(config);
  const bool from_gguf = source.gguf != nullptr;
  Plan plan = plan_folder(std::move(tensors), options, from_gguf);
  const ConvertReport report = report_of(plan);
  check_space(options.destination, report.bytes);

  if (options.dtype || from_gguf) set_dtype(config, options.dtype.value_or(StorageType::bf16));
  const ordered_json quantization = quantization_settings(plan.tensors);
  if (!quantization.is_null()) {
    config["quantization"] = quantization;
    config["quantization_config"] = quantization;
  }
  StagingFolder staging(options.destination);
  if (from_gguf) {
    write_tokenizer_files(source.gguf->metadata(), staging.path());
  } else {
    copy_companions(source.path, staging.path());
  }
  write_json(staging.path() / "config.json", config);
  write_safetensors(plan.tensors, stream_control(options, report.values), staging.path());
  staging.publish();
  return report;
}

/// The number by which `general.file_type` names what most tensors are (llama.cpp's list).
std::uint64_t file_type(StorageType type) {
  constexpr std::array<std::pair<StorageType, std::uint64_t>, 13> numbers = {{
      {StorageType::f32, 0},
      {StorageType::f16, 1},
      {StorageType::q4_0, 2},
      {StorageType::q4_1, 3},
      {StorageType::q8_0, 7},
      {StorageType::q5_0, 8},
      {StorageType::q5_1, 9},
      {StorageType::q4_k, 14},
      {StorageType::q5_k, 16},
      {StorageType::q6_k, 18},
      {StorageType::iq4_nl, 25},
      {StorageType::iq4_xs, 30},
      {StorageType::bf16, 32},
  }};
  return std::ranges::find(numbers, type, &std::pair<StorageType, std::uint64_t>::first)->second;
}

/// Metadata of the source that holds for the target too.
void copy_values(const arrays::GgufMetadata& metadata, arrays::GgufValues& values) {
  constexpr std::array<std::string_view, 4> own = {"general.architecture", "general.file_type",
                                                   "general.quantization_version",
                                                   "general.alignment"};
  for (const auto& [key, value] : metadata.values()) {
    const bool skipped = std::ranges::find(own, key) != own.end() || key.starts_with("split.");
    if (!skipped) values.emplace_back(key, value);
  }
}

ConvertReport to_gguf(const Source& source, const ConvertOptions& options) {
  std::vector<SourceTensor> tensors = source.tensors;
  arrays::GgufValues values;
  const auto add = [&](const char* key, arrays::GgufValue value) {
    values.emplace_back(key, std::move(value));
  };
  if (source.gguf) {
    const arrays::GgufMetadata& metadata = source.gguf->metadata();
    add("general.architecture", metadata.require_string("general.architecture"));
    copy_values(metadata, values);
  } else {
    const Layout& layout = layout_of(source);
    GgufSettings settings = gguf_settings(source, layout);
    drop_tied_head(source.config, tensors);
    const auto embedding = std::ranges::find(tensors, "model.embed_tokens.weight",
                                             [](const SourceTensor& t) { return t.name(); });
    if (embedding == tensors.end()) {
      throw LoadError(source.path.string() + ": tensor model.embed_tokens.weight is missing");
    }
    const std::int64_t vocabulary = embedding->rows();
    tensors = to_gguf_layout(layout, settings.heads, std::move(tensors), source.path.string());
    std::ranges::move(settings.tensors, std::back_inserter(tensors));
    add("general.architecture", std::string(layout.architecture));
    add("general.type", std::string("model"));
    add("general.name", normal_path(source.path).filename().string());
    std::ranges::move(settings.values, std::back_inserter(values));
    std::ranges::move(tokenizer_values(source.path, vocabulary), std::back_inserter(values));
  }
  add("general.file_type", file_type(*options.gguf));
  add("general.quantization_version", std::uint64_t{2});

  Plan plan = plan_gguf(std::move(tensors), options);
  const ConvertReport report = report_of(plan);
  check_space(options.destination, report.bytes);
  remove_leftovers(options.destination);
  write_gguf(values, plan.tensors, stream_control(options, report.values), options.destination);
  return report;
}

void check_options(const ConvertOptions& options) {
  if (options.destination.empty()) throw UsageError("the output needs a name");
  const bool to_file = options.destination.extension() == ".gguf";
  if (to_file != options.gguf.has_value()) {
    throw UsageError(to_file ? "a .gguf file needs --gguf TYPE"
                             : "with --gguf the output must be a .gguf file");
  }
  const int modes =
      int{options.quantize.has_value()} + int{options.dequantize} + int{options.gguf.has_value()};
  if (modes > 1) throw UsageError("only one of quantize, dequantize and gguf can be done at once");
  if (modes == 0 && !options.dtype && options.rules.empty()) {
    throw UsageError("say what to convert to: a dtype, quantize, dequantize or gguf");
  }
  if (options.gguf && options.dtype) {
    throw UsageError("a dtype does not go with gguf, whose type is the dtype");
  }
  if (options.quantize && !quantization::is_mlx_format(*options.quantize)) {
    throw UsageError(
        "MLX quantizes to 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128 (affine); the other "
        "modes have bits and group of their own");
  }
}

}  // namespace

ConvertReport convert(const ConvertOptions& options) {
  check_options(options);
  ConvertOptions normal = options;
  normal.destination = normal_path(options.destination);
  if (fs::exists(fs::symlink_status(normal.destination))) {
    throw std::runtime_error(normal.destination.string() + " exists already");
  }
  try {
    const Source source = open_source(options.source);
    return normal.gguf ? to_gguf(source, normal) : to_folder(source, normal);
  } catch (const nlohmann::json::exception& error) {
    throw LoadError(options.source.string() + ": a setting has the wrong type: " + error.what());
  }
}

}  // namespace espalier::conversion
