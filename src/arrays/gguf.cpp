#include "arrays/gguf.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <sys/stat.h>

#include "arrays/gguf_header.h"
#include "arrays/tensor_index.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace espalier::arrays {
namespace {

namespace fs = std::filesystem;
using base::LoadError;

/// As many as the names of parts can count.
constexpr std::int64_t most_parts = 99'999;

/// The parts of a model that was split over files named `STEM-00001-of-00003.gguf`.
struct SplitName {
  std::string stem;
  int count;

  std::string part(int number) const {
    char suffix[32];
    std::snprintf(suffix, sizeof(suffix), "-%05d-of-%05d.gguf", number, count);
    return stem + suffix;
  }
};

std::optional<SplitName> parse_split_name(const std::string& name) {
  constexpr std::string_view pattern = "-00000-of-00000.gguf";
  if (name.size() <= pattern.size()) return std::nullopt;
  const std::size_t start = name.size() - pattern.size();
  int count = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char character = name[start + i];
    if (pattern[i] != '0') {
      if (character != pattern[i]) return std::nullopt;
      continue;
    }
    if (character < '0' || character > '9') return std::nullopt;
    // Only the digits after "-of-" survive.
    count = (i == 10 ? 0 : count * 10) + (character - '0');
  }
  return SplitName{name.substr(0, start), count};
}

/// The mapped parts of a model with their tensors under one roof.
class MappedGguf : public GgufFile {
 public:
  explicit MappedGguf(const fs::path& path) : path_(path.string()), metadata_(path_, {}) {
    add(path, true);
    const auto parts = metadata_.integer("split.count").value_or(1);
    if (parts > 1) add_parts(path, parts);
  }

  const GgufMetadata& metadata() const override { return metadata_; }
  const std::vector<TensorView>& tensors() const override { return index_.tensors(); }
  const TensorView* find(std::string_view name) const override { return index_.find(name); }
  std::string path() const override { return path_; }

  void release(const TensorView& tensor) const override { files_.front()->release(tensor.bytes); }

 private:
  /// Opens the parts after the first, which `open` made sure is the one already here.
  void add_parts(const fs::path& path, std::int64_t parts) {
    const auto name = parse_split_name(path.filename().string());
    if (!name || name->count != parts) {
      throw LoadError(
          path_ + ": split.count says that the model lies in " + std::to_string(parts) +
          " files, but the name does not end in " +
          SplitName{"", static_cast<int>(std::min<std::int64_t>(parts, most_parts))}.part(1));
    }
    for (int number = 2; number <= name->count; ++number) {
      add(path.parent_path() / name->part(number), false);
    }
    const auto expected = metadata_.integer("split.tensors.count");
    if (expected && *expected != static_cast<std::int64_t>(tensors().size())) {
      throw LoadError(path_ + ": the parts hold " + std::to_string(tensors().size()) +
                      " tensors, but split.tensors.count says " + std::to_string(*expected));
    }
  }

  void add(const fs::path& path, bool first) {
    auto file = base::MappedFile::open(path);
    GgufHeader header = parse_gguf_header(file->bytes(), path.string());
    GgufMetadata metadata(path.string(), std::move(header.values));
    const std::int64_t number = metadata.integer("split.no").value_or(0);
    if (number != static_cast<std::int64_t>(files_.size())) {
      throw LoadError(path.string() + ": split.no is " + std::to_string(number) + ", expected " +
                      std::to_string(files_.size()));
    }
    const std::int64_t count = metadata.integer("split.count").value_or(1);
    const std::int64_t expected = first ? count : metadata_.integer("split.count").value_or(1);
    if (count < 1 || count != expected) {
      throw LoadError(path.string() + ": split.count is " + std::to_string(count) +
                      (first ? ", expected at least 1"
                             : ", but in the first file " + std::to_string(expected)));
    }
    if (first) metadata_ = std::move(metadata);
    for (GgufHeader::Tensor& tensor : header.tensors) {
      const auto bytes =
          file->bytes().subspan(tensor.bytes == 0 ? 0 : header.data + tensor.offset, tensor.bytes);
      index_.add({std::move(tensor.name), tensor.type, std::move(tensor.shape), bytes},
                 path.string());
    }
    files_.push_back(std::move(file));
  }

  std::string path_;
  GgufMetadata metadata_;
  TensorIndex index_;
  std::vector<std::shared_ptr<const base::MappedFile>> files_;
};

/// Which file it is and which state of it, by what the system says of it.
using FileState = std::array<std::int64_t, 5>;

std::optional<FileState> file_state(const fs::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileState{static_cast<std::int64_t>(status.st_dev),
                   static_cast<std::int64_t>(status.st_ino), status.st_size, status.st_mtim.tv_sec,
                   status.st_mtim.tv_nsec};
}

/// The file that somebody has open already, else a new one: tokenizer and weights are read at the
/// same time, and parsing a vocabulary is a tenth of a small model's start.
std::shared_ptr<const GgufFile> open_shared(const fs::path& path) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, FileState>, std::weak_ptr<const GgufFile>> open_files;
  const auto state = file_state(path);
  if (!state) return std::make_shared<MappedGguf>(path);  // says what is wrong
  const std::lock_guard lock(mutex);
  std::erase_if(open_files, [](const auto& entry) { return entry.second.expired(); });
  auto& known = open_files[{path.string(), *state}];
  auto file = known.lock();
  if (!file) {
    file = std::make_shared<MappedGguf>(path);
    known = file;
  }
  return file;
}

}  // namespace

std::shared_ptr<const GgufFile> GgufFile::open(const fs::path& path) {
  const auto name = parse_split_name(path.filename().string());
  // Any part stands for the whole model.
  return open_shared(name && name->count > 1 ? path.parent_path() / name->part(1) : path);
}

}  // namespace espalier::arrays
