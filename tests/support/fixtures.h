#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace espalier::tests {

/// Where reference data lies: `ESPALIER_SHARED`, else `shared` beside the source folder. Nothing
/// when it is not there; tests then skip and say so.
inline std::optional<std::filesystem::path> shared_folder() {
  const char* given = std::getenv("ESPALIER_SHARED");
  const std::filesystem::path folder =
      given != nullptr ? std::filesystem::path(given)
                       : std::filesystem::path(ESPALIER_SOURCE_DIR).parent_path() / "shared";
  if (!std::filesystem::is_directory(folder / "fixtures")) return std::nullopt;
  return folder;
}

/// The default model's file: `ESPALIER_TEST_MODEL`, else where `./dev` puts it. Nothing when it is
/// not there.
inline std::optional<std::filesystem::path> test_model() {
  std::filesystem::path path;
  if (const char* given = std::getenv("ESPALIER_TEST_MODEL")) {
    path = given;
  } else if (const char* home = std::getenv("HOME")) {
    path = std::filesystem::path(home) / ".espalier/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  }
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  return path;
}

/// The unpacked folder of the archive `shared/fixtures/NAME.tar.xz`, say "tiny-text" (whose top
/// folder is `a`). Unpacked once into the temporary folder; tests in other processes wait. Nothing
/// when the archive is absent.
inline std::optional<std::filesystem::path> fixture_folder(const std::string& name) {
  namespace fs = std::filesystem;
  const auto shared = shared_folder();
  if (!shared) return std::nullopt;
  const fs::path archive = *shared / "fixtures" / (name + ".tar.xz");
  if (!fs::exists(archive)) return std::nullopt;
  const fs::path parent =
      fs::temp_directory_path() / ("espalier-fixtures-" + std::to_string(::getuid()));
  // A changed archive gets a folder of its own.
  const std::string version = std::to_string(fs::file_size(archive));
  const fs::path folder = parent / (name + "-" + version);
  fs::create_directories(parent);
  const int lock = ::open((parent / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (lock < 0 || ::flock(lock, LOCK_EX) != 0) throw std::runtime_error("cannot lock fixtures");
  bool ready = fs::exists(folder);
  if (!ready) {
    const fs::path partial = parent / (name + "-partial");
    fs::remove_all(partial);
    fs::create_directories(partial);
    const std::string command =
        "tar -xf '" + archive.string() + "' -C '" + partial.string() + "' --no-same-owner";
    ready = std::system(command.c_str()) == 0;
    if (ready) fs::rename(partial, folder);
  }
  ::close(lock);
  if (!ready) throw std::runtime_error("cannot unpack " + archive.string());
  return folder;
}

}  // namespace espalier::tests
