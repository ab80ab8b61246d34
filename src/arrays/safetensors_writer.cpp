#include "arrays/safetensors_writer.h"

#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "arrays/safetensors_header.h"
#include "arrays/tensor_index.h"

namespace espalier::arrays {
namespace {

/// Readers that map the file want tensor data aligned to this.
constexpr std::size_t data_alignment = 8;

/// The header text, padded so that data starts aligned; adds the data's length to `bytes`.
std::string header_text(const std::vector<SafetensorsWriter::Entry>& entries,
                        const std::map<std::string, std::string>& metadata, std::uint64_t& bytes) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const auto& entry : entries) {
    const std::string type(safetensors_type_name(entry.type));
    const auto size = tensor_bytes(entry.type, entry.shape);
    if (type.empty() || !size || header.contains(entry.name)) {
      throw std::invalid_argument("[SafetensorsWriter] cannot write tensor " +
                                  shown_name(entry.name) + " of shape " + to_string(entry.shape));
    }
    header[entry.name] = {
        {"dtype", type}, {"shape", entry.shape}, {"data_offsets", {bytes, bytes + *size}}};
    bytes += *size;
  }
  std::string text = header.dump();
  text.append((data_alignment - text.size() % data_alignment) % data_alignment, ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, const std::vector<Entry>& entries,
                                     const std::map<std::string, std::string>& metadata)
    : file_(std::move(path)) {
  const std::string header = header_text(entries, metadata, missing_);
  const std::uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (bytes.size() > missing_) {
    throw std::logic_error("[SafetensorsWriter] more data than the entries describe");
  }
  file_.write(bytes);
  missing_ -= bytes.size();
}

void SafetensorsWriter::finish() {
  if (missing_ > 0) {
    throw std::logic_error("[SafetensorsWriter] " + std::to_string(missing_) +
                           " bytes of data are missing");
  }
  file_.publish(base::OutputFile::Existing::replace);
}

}  // namespace espalier::arrays
