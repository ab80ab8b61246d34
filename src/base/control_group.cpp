#include "base/control_group.h"

#include <fstream>
#include <sstream>

namespace espalier::base {
namespace {

namespace fs = std::filesystem;

bool names_controller(const std::string& list, const std::string& controller) {
  std::istringstream names(list);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == controller) return true;
  }
  return false;
}

/// Adds `root` and the groups on the way to `path`, which is relative to it.
void add_existing(const fs::path& root, const std::string& path, std::vector<fs::path>& folders) {
  fs::path group = root;
  if (fs::is_directory(group)) folders.push_back(group);
  for (const fs::path& part : fs::path(path).relative_path()) {
    group /= part;
    if (fs::is_directory(group)) folders.push_back(group);
  }
}

}  // namespace

std::vector<fs::path> control_group_folders(const std::string& controller,
                                            const fs::path& membership, const fs::path& mount) {
  std::vector<fs::path> folders;
  std::ifstream file(membership);
  // Each line is "ID:CONTROLLERS:PATH"; version 2 has no controllers.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      add_existing(mount, path, folders);
      add_existing(mount / "unified", path, folders);
    } else if (names_controller(controllers, controller)) {
      add_existing(mount / controller, path, folders);
      if (controllers != controller) add_existing(mount / controllers, path, folders);
    }
  }
  return folders;
}

}  // namespace espalier::base
