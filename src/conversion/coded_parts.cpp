#include "conversion/coded_parts.h"

#include <cstdint>
#include <fstream>
#include <functional>
#include <vector>

#include "base/output_file.h"

namespace espalier::conversion {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

}  // namespace

CodedParts::CodedParts(const fs::path& destination, std::string identity)
    : folder_(destination.string() + ".coded"), identity_(std::move(identity)) {}

fs::path CodedParts::path_of(const std::string& key) const {
  return folder_ / (std::to_string(std::hash<std::string>()(key)) + ".part");
}

bool CodedParts::replay(const std::string& key, std::uint64_t bytes, const Sink& sink) const {
  const std::string header = identity_ + "\n" + key + "\n";
  const fs::path path = path_of(key);
  std::error_code error;
  if (fs::file_size(path, error) != header.size() + bytes || error) return false;
  std::ifstream file(path, std::ios::binary);
  std::string found(header.size(), '\0');
  if (!file.read(found.data(), static_cast<std::streamsize>(found.size())) || found != header) {
    return false;
  }
  std::vector<std::byte> piece(std::min<std::uint64_t>(piece_bytes, bytes));
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t count = std::min<std::uint64_t>(piece.size(), bytes - done);
    if (!file.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(count))) {
      throw std::runtime_error("cannot read " + path.string());
    }
    sink(std::span(piece).first(count));
    done += count;
  }
  return true;
}

void CodedParts::keep(const std::string& key, const std::function<void(const Sink&)>& produce,
                      const Sink& sink) {
  fs::create_directories(folder_);
  base::OutputFile file(path_of(key));
  const std::string header = identity_ + "\n" + key + "\n";
  file.write(std::as_bytes(std::span(header)));
  produce([&](std::span<const std::byte> bytes) {
    file.write(bytes);
    sink(bytes);
  });
  file.publish(base::OutputFile::Existing::replace);
}

void CodedParts::remove() { fs::remove_all(folder_); }

}  // namespace espalier::conversion
