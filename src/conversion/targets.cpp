#include "conversion/targets.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include "arrays/safetensors_writer.h"
#include "arrays/tensor_index.h"
#include "base/output_file.h"

namespace espalier::conversion {
namespace {

using kernels::TrellisFormat;
using nlohmann::ordered_json;
using quantization::MlxFormat;

using Entries = std::vector<arrays::SafetensorsWriter::Entry>;

/// The stored tensors of one planned tensor.
Entries entries_of(const PlannedTensor& tensor) {
  Entries entries;
  for (StoredPart& part : stored_parts(tensor)) {
    const std::string& name = tensor.source.name();
    entries.push_back({part.suffix.empty() ? name : layer_name(name) + part.suffix, part.type,
                       std::move(part.shape)});
  }
  return entries;
}

std::uint64_t bytes_of(const Entries& entries) {
  std::uint64_t bytes = 0;
  for (const auto& entry : entries) {
    bytes += arrays::tensor_bytes(entry.type, entry.shape).value_or(0);
  }
  return bytes;
}

struct Shard {
  std::vector<const PlannedTensor*> tensors;
  Entries entries;
  std::uint64_t bytes = 0;
};

std::vector<Shard> cut(const std::vector<PlannedTensor>& tensors, std::uint64_t shard_bytes) {
  std::vector<Shard> shards(1);
  for (const PlannedTensor& tensor : tensors) {
    const Entries entries = entries_of(tensor);
    const std::uint64_t bytes = bytes_of(entries);
    if (shards.back().bytes > 0 && shards.back().bytes + bytes > shard_bytes) {
      shards.emplace_back();
    }
    Shard& shard = shards.back();
    shard.tensors.push_back(&tensor);
    shard.entries.insert(shard.entries.end(), entries.begin(), entries.end());
    shard.bytes += bytes;
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  std::array<char, 64> name;
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name.data();
}

void write_index(const std::vector<Shard>& shards, const std::filesystem::path& folder) {
  std::uint64_t total = 0;
  ordered_json map = ordered_json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    total += shards[i].bytes;
    for (const auto& entry : shards[i].entries) map[entry.name] = shard_name(i, shards.size());
  }
  const ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  const std::string text = index.dump(2) + "\n";
  base::OutputFile file(folder / "model.safetensors.index.json");
  file.write(std::as_bytes(std::span(text)));
  file.publish(base::OutputFile::Existing::replace);
}

ordered_json format_settings(const MlxFormat& format) {
  return {{"group_size", format.group}, {"bits", format.bits}, {"mode", mode_name(format.mode)}};
}

/// Multimodal models have their language tensors under two names: Hugging Face's and mlx-lm's.
void add_trellis_settings(ordered_json& settings, const std::string& layer,
                          const TrellisFormat& format) {
  constexpr std::string_view own = "model.language_model.";
  constexpr std::string_view other = "language_model.model.";
  ordered_json entry = {
      {"bits", format.bits},
      {"group_size", kernels::trellis_block_weights},
      {"mode", "trellis"},
      {"trellis",
       {{"L", format.state_bits}, {"code", code_name(format.code)}, {"axis", format.axis}}}};
  if (format.half_bit) entry["bits"] = format.bits + 0.5;
  settings[layer] = entry;
  if (layer.starts_with(own)) settings[std::string(other) + layer.substr(own.size())] = entry;
}

}  // namespace

void write_safetensors(const std::vector<PlannedTensor>& tensors, const StreamControl& control,
                       std::uint64_t shard_bytes, const std::filesystem::path& folder) {
  const bool quantized = !quantization_settings(tensors).is_null();
  const std::vector<Shard> shards = cut(tensors, shard_bytes);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    arrays::SafetensorsWriter writer(folder / shard_name(i, shards.size()), shards[i].entries,
                                     {{"format", quantized ? "mlx" : "pt"}});
    for (const PlannedTensor* tensor : shards[i].tensors) {
      stream_tensor(*tensor, control,
                    [&](std::span<const std::byte> bytes) { writer.append(bytes); });
    }
    writer.finish();
  }
  if (shards.size() > 1) write_index(shards, folder);
}

ordered_json quantization_settings(const std::vector<PlannedTensor>& tensors) {
  std::vector<std::pair<MlxFormat, std::int64_t>> formats;  // and how many values have them
  for (const PlannedTensor& tensor : tensors) {
    const auto* format = std::get_if<MlxFormat>(&tensor.target);
    if (format == nullptr) continue;
    auto found = std::ranges::find(formats, *format, &std::pair<MlxFormat, std::int64_t>::first);
    if (found == formats.end()) found = formats.insert(formats.end(), {*format, 0});
    found->second += tensor.source.elements();
  }
  const bool trellis = std::ranges::any_of(tensors, [](const PlannedTensor& tensor) {
    return std::holds_alternative<TrellisFormat>(tensor.target);
  });
  if (formats.empty() && !trellis) return nullptr;
  const MlxFormat usual =
      formats.empty()
          ? MlxFormat{}
          : std::ranges::max_element(formats, {}, &std::pair<MlxFormat, std::int64_t>::second)
                ->first;
  ordered_json settings = format_settings(usual);
  for (const PlannedTensor& tensor : tensors) {
    if (const auto* coded = std::get_if<TrellisFormat>(&tensor.target)) {
      add_trellis_settings(settings, layer_name(tensor.source.name()), *coded);
      continue;
    }
    const auto* format = std::get_if<MlxFormat>(&tensor.target);
    if (format == nullptr || *format == usual) continue;
    settings[layer_name(tensor.source.name())] = format_settings(*format);
  }
  return settings;
}

void write_gguf(const arrays::GgufValues& values, const std::vector<PlannedTensor>& tensors,
                const StreamControl& control, const std::filesystem::path& path) {
  std::vector<arrays::GgufWriter::Entry> entries;
  for (const PlannedTensor& tensor : tensors) {
    const StoredPart part = stored_parts(tensor).front();
    entries.push_back({tensor.source.name(), part.type, part.shape});
  }
  arrays::GgufWriter writer(path, values, entries);
  for (const PlannedTensor& tensor : tensors) {
    stream_tensor(tensor, control, [&](std::span<const std::byte> bytes) { writer.append(bytes); });
  }
  writer.finish();
}

}  // namespace espalier::conversion
