#include "base/output_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace espalier::base {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_to_write(const fs::path& path, int error) {
  throw std::runtime_error("cannot write " + path.string() + ": " + std::strerror(error));
}

}  // namespace

void rename_without_replacing(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST) throw std::runtime_error(to.string() + " exists already");
  // Some file systems know only the plain call.
  if (errno != EINVAL && errno != ENOSYS) fail_to_write(to, errno);
  if (fs::exists(fs::symlink_status(to))) {
    throw std::runtime_error(to.string() + " exists already");
  }
  if (::rename(from.c_str(), to.c_str()) != 0) fail_to_write(to, errno);
}

OutputFile::OutputFile(fs::path path) : path_(std::move(path)) {
  // It is replaced as a whole: a link is followed first, and a device would be lost.
  std::error_code error;
  const auto status = fs::status(path_, error);
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status)) {
      throw std::runtime_error("cannot write " + path_.string() + ": it is no regular file");
    }
    path_ = fs::canonical(path_);
  }
  temporary_ = path_;
  temporary_ += ".partial-" + std::to_string(::getpid());
  file_ = ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (file_ < 0) fail_to_write(path_, errno);
}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::fail(int error) const { fail_to_write(path_, error); }

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) fail(errno);
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::publish(Existing existing) {
  const int synced = ::fsync(file_);
  const int sync_error = errno;
  const int closed = ::close(std::exchange(file_, -1));
  if (synced != 0 || closed != 0) fail(synced != 0 ? sync_error : errno);
  if (existing == Existing::refuse) {
    rename_without_replacing(temporary_, path_);
  } else if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(errno);
  }
  temporary_.clear();
}

}  // namespace espalier::base
