#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace espalier::base {

/// Renames in one step. Throws `std::runtime_error` naming `to` when something of that name exists
/// already or the system refuses.
void rename_without_replacing(const std::filesystem::path& from, const std::filesystem::path& to);

/// A file that appears under its name only when it is complete: written into a temporary file
/// beside it, which is removed unless `publish` is called. Every function throws
/// `std::runtime_error` naming the file and the system's reason. Used from one thread.
class OutputFile {
 public:
  enum class Existing { replace, refuse };

  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Makes the file durable and gives it its name.
  void publish(Existing existing);

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int file_ = -1;
};

}  // namespace espalier::base
