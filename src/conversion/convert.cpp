#include "conversion/convert.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <calibration_text.h>

#include "arrays/tensor_index.h"
#include "base/error.h"
#include "base/output_file.h"
#include "conversion/coded_parts.h"
#include "conversion/folder_plan.h"
#include "conversion/gguf_settings.h"
#include "conversion/input_moments.h"
#include "conversion/layout.h"
#include "conversion/plan.h"
#include "conversion/source.h"
#include "conversion/staging_folder.h"
#include "conversion/targets.h"
#include "conversion/tokenizer_files.h"
#include "models/audit.h"

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
  // Written anew, or about names and codes that the output does not have.
  constexpr std::array<std::string_view, 6> stale = {"config.json",
                                                     "params.json",
                                                     "quant_config.json",
                                                     "quantize_config.json",
                                                     "quantization_config.json",
                                                     "hf_quant_config.json"};
  if (std::ranges::find(stale, name) != stale.end() || name.ends_with(".index.json")) return false;
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

/// The text that the model is run over, if it is to be.
std::optional<std::string> calibration_text(const ConvertOptions& options) {
  if (options.calibration || !options.trellis || !options.calibrate_where_possible) {
    return options.calibration;
  }
  return own_calibration_text;
}

/// What coded tensors depend on beside their own settings.
std::string identity_of(const ConvertOptions& options) {
  std::string identity = fs::absolute(options.source).string();
  std::vector<fs::path> files = {options.source};
  if (fs::is_directory(options.source)) {
    files.assign(fs::directory_iterator(options.source), fs::directory_iterator());
    std::ranges::sort(files);
  }
  for (const fs::path& file : files) {
    if (!fs::is_regular_file(file)) continue;
    identity += ' ';
    identity += std::to_string(fs::file_size(file));
    identity += ' ';
    identity += std::to_string(fs::last_write_time(file).time_since_epoch().count());
  }
  if (options.rotation_seed) {
    identity += " rotated ";
    identity += std::to_string(*options.rotation_seed);
  }
  if (options.rotate_where_exact) identity += " rotated where exact";
  if (const auto text = calibration_text(options)) {
    identity += " calibrated ";
    identity += std::to_string(std::hash<std::string>()(*text));
  }
  return identity;
}

/// Counts values and passes on what a person wants to see.
StreamControl stream_control(const ConvertOptions& options, std::int64_t total) {
  StreamControl control{.cancelled = options.cancelled};
  if (options.trellis) {
    control.coded = std::make_shared<CodedParts>(options.destination, identity_of(options));
  }
  if (!options.progress) return control;
  const int end = static_cast<int>((total + progress_unit - 1) / progress_unit);
  // The function is copied along; the count must not be.
  control.advanced = [&options, end,
                      done = std::make_shared<std::int64_t>(0)](std::int64_t values) {
    const auto before = static_cast<int>(*done / progress_unit);
    const bool first = *done == 0;
    *done += values;
    const auto now = static_cast<int>(*done / progress_unit);
    if (first || now > before) options.progress(now, std::max(end, now));
  };
  return control;
}

/// What sees the inputs of the matrices that become trellis codes.
std::shared_ptr<InputMomentsSource> moments_source(const Source& source,
                                                   const ConvertOptions& options,
                                                   const std::vector<PlannedTensor>& tensors) {
  std::vector<std::pair<std::string, int>> coded;
  for (const PlannedTensor& tensor : tensors) {
    if (!std::holds_alternative<kernels::TrellisFormat>(tensor.target)) continue;
    coded.emplace_back(tensor.source.stored_name(), static_cast<int>(tensor.source.columns()));
  }
  return std::make_shared<InputMomentsSource>(
      CalibrationText{.model = source.path,
                      .file = source.file,
                      .text = *calibration_text(options),
                      .required = options.calibration.has_value(),
                      .cancelled = options.cancelled},
      std::move(coded));
}

ConvertReport to_folder(const Source& source, const ConvertOptions& options) {
  auto [config, plan] = prepare_folder(source, options);
  const bool from_gguf = source.gguf != nullptr;
  ConvertReport report = report_of(plan);
  check_space(options.destination, report.bytes);

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
  StreamControl control = stream_control(options, report.values);
  if (calibration_text(options)) control.moments = moments_source(source, options, plan.tensors);
  control.noted = [&](std::string note) { report.notes.push_back(std::move(note)); };
  write_safetensors(plan.tensors, control, options.shard_bytes, staging.path());
  staging.publish();
  if (control.coded) control.coded->remove();
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
  std::vector<std::string> notes;
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
    drop_unread(source, tensors, notes);
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
  std::ranges::move(notes, std::back_inserter(plan.notes));
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
  if (modes == 0 && !options.dtype && options.rules.empty() && !options.trellis &&
      !options.rotation_seed) {
    throw UsageError("say what to convert to: a dtype, quantize, trellis, dequantize or gguf");
  }
  if ((options.trellis || options.rotation_seed) && (options.dequantize || options.gguf)) {
    throw UsageError("trellis codes and rotations do not go with dequantize or gguf");
  }
  if (options.calibration && !options.trellis) {
    throw UsageError("a calibration text goes with trellis codes or a budget");
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
  if (normal.trellis && !normal.quantize) normal.quantize = quantization::MlxFormat{};
  require_free(normal.destination);
  try {
    const Source source = open_source(options.source);
    models::audit_checkpoint(options.source);
    return normal.gguf ? to_gguf(source, normal) : to_folder(source, normal);
  } catch (const nlohmann::json::exception& error) {
    throw LoadError(options.source.string() + ": a setting has the wrong type: " + error.what());
  }
}

}  // namespace espalier::conversion
