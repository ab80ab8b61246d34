#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/fixtures.h"

namespace espalier::tests {

/// The folders below `shared/fixtures/text/GROUP`, sorted; none when they are absent.
inline std::vector<std::filesystem::path> text_cases(const std::string& group) {
  std::vector<std::filesystem::path> folders;
  const auto shared = shared_folder();
  if (!shared) return folders;
  const auto root = *shared / "fixtures/text" / group;
  if (!std::filesystem::is_directory(root)) return folders;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// What `xz` unpacks from `archive`, written to `target`.
inline void unpack(const std::filesystem::path& archive, const std::filesystem::path& target) {
  const std::string command = "xz -dc '" + archive.string() + "' > '" + target.string() + "'";
  if (std::system(command.c_str()) != 0) {
    throw std::runtime_error("cannot unpack " + archive.string());
  }
}

/// A folder of its own in the temporary folder, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "espalier-text-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A checkpoint folder with the family's tokenizer.json and tokenizer_config.json.
inline std::unique_ptr<ScratchFolder> tokenizer_folder(const std::filesystem::path& family) {
  auto folder = std::make_unique<ScratchFolder>();
  unpack(family / "tokenizer.json.xz", folder->path() / "tokenizer.json");
  std::filesystem::copy_file(family / "tokenizer_config.json",
                             folder->path() / "tokenizer_config.json");
  return folder;
}

/// A name that GoogleTest accepts.
inline std::string case_name(const std::filesystem::path& folder) {
  std::string name = folder.filename().string();
  for (char& character : name) {
    if (std::isalnum(static_cast<unsigned char>(character)) == 0) character = '_';
  }
  return name;
}

}  // namespace espalier::tests
