#include "arrays/safetensors_writer.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

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
    : path_(std::move(path)) {
  const std::string header = header_text(entries, metadata, missing_);
  temporary_ = path_;
  temporary_ += ".partial-" + std::to_string(::getpid());
  file_ = ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (file_ < 0) {
    temporary_.clear();
    fail(errno);
  }
  const std::uint64_t length = header.size();
  try {
    write(std::as_bytes(std::span(&length, 1)));
    write(std::as_bytes(std::span(header)));
  } catch (...) {
    ::close(file_);
    ::unlink(temporary_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void SafetensorsWriter::fail(int error) const {
  throw std::runtime_error("cannot write " + path_.string() + ": " + std::strerror(error));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) fail(errno);
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (bytes.size() > missing_) {
    throw std::logic_error("[SafetensorsWriter] more data than the entries describe");
  }
  write(bytes);
  missing_ -= bytes.size();
}

void SafetensorsWriter::finish() {
  if (missing_ > 0) {
    throw std::logic_error("[SafetensorsWriter] " + std::to_string(missing_) +
                           " bytes of data are missing");
  }
  const int synced = ::fsync(file_);
  const int sync_error = errno;
  const int closed = ::close(std::exchange(file_, -1));
  if (synced != 0 || closed != 0) fail(synced != 0 ? sync_error : errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  temporary_.clear();
}

}  // namespace espalier::arrays
