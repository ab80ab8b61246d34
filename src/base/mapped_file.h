#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace espalier::base {

/// A whole file mapped read-only. Immutable and safe to read from any thread; the mapping lives as
/// long as the object.
class MappedFile {
 public:
  /// Throws `LoadError` naming the path when it cannot be opened or is not a regular file.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  /// Tells the kernel that the pages of `range` are no longer needed by this process.
  void release(std::span<const std::byte> range) const;

 private:
  MappedFile(std::filesystem::path path, const std::byte* data, std::size_t size);

  std::filesystem::path path_;
  const std::byte* data_;
  std::size_t size_;
};

}  // namespace espalier::base
