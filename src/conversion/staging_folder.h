#pragma once

#include <filesystem>

namespace espalier::conversion {

/// A folder that appears under its name only when it is complete. Until then it lies beside it as
/// `NAME.partial-PID`; it is removed unless `publish` is called. Folders of that kind which ended
/// processes left behind are removed first. Throws `std::runtime_error` when the destination exists
/// or the system refuses.
class StagingFolder {
 public:
  explicit StagingFolder(const std::filesystem::path& destination);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::filesystem::path& path() const { return temporary_; }
  void publish();

 private:
  std::filesystem::path destination_;
  std::filesystem::path temporary_;
};

/// Throws `std::runtime_error` when something lies at a path, be it a link to nowhere, or when
/// nothing can.
void require_free(const std::filesystem::path& destination);

/// Removes files and folders `NAME.partial-PID` beside `destination` whose process is gone.
void remove_leftovers(const std::filesystem::path& destination);

/// Without a slash at the end, and absolute.
std::filesystem::path normal_path(const std::filesystem::path& path);

}  // namespace espalier::conversion
