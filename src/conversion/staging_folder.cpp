#include "conversion/staging_folder.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "base/output_file.h"

namespace espalier::conversion {
namespace {

namespace fs = std::filesystem;

/// The process that a name ends in says is at work; 0 when the name is of another kind.
pid_t owner(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return 0;
  pid_t process = 0;
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + prefix.size(), end, process);
  return read.ec == std::errc() && read.ptr == end ? process : 0;
}

bool is_gone(pid_t process) { return ::kill(process, 0) != 0 && errno == ESRCH; }

}  // namespace

fs::path normal_path(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

void require_free(const fs::path& destination) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(destination, error).type();
  if (type == fs::file_type::not_found) return;
  throw std::runtime_error(type == fs::file_type::none
                               ? "cannot write " + destination.string() + ": " + error.message()
                               : destination.string() + " exists already");
}

void remove_leftovers(const fs::path& destination) {
  const std::string prefix = destination.filename().string() + ".partial-";
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (fs::directory_iterator entry(destination.parent_path(), error), end; !error && entry != end;
       entry.increment(error)) {
    const pid_t process = owner(entry->path().filename().string(), prefix);
    if (process > 0 && is_gone(process)) leftovers.push_back(entry->path());
  }
  for (const fs::path& path : leftovers) fs::remove_all(path, error);
}

StagingFolder::StagingFolder(const fs::path& destination) : destination_(destination) {
  remove_leftovers(destination_);
  temporary_ = destination_;
  temporary_ += ".partial-" + std::to_string(::getpid());
  std::error_code error;
  if (!fs::create_directory(temporary_, error)) {
    throw std::runtime_error("cannot write " + temporary_.string() + ": " +
                             (error ? error.message() : "it exists already"));
  }
}

StagingFolder::~StagingFolder() {
  std::error_code error;
  if (!temporary_.empty()) fs::remove_all(temporary_, error);
}

void StagingFolder::publish() {
  base::rename_without_replacing(temporary_, destination_);
  temporary_.clear();
}

}  // namespace espalier::conversion
