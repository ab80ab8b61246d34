#include "base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "base/control_group.h"

namespace espalier::base {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

/// The number after `name` in a file of "NAME NUMBER" lines; a rest of the line is skipped.
std::optional<std::uint64_t> read_field(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::uint64_t number = 0;
    if (word == name && file >> number) return number;
    file.clear();
    std::string rest;
    std::getline(file, rest);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> left_in_group(const fs::path& group, const std::string& limit_file,
                                           const std::string& usage_file,
                                           const std::string& cache_field) {
  // No limit is "max" in version 2 and a huge number in version 1.
  const auto limit = read_number(group / limit_file);
  const auto usage = read_number(group / usage_file);
  if (!limit || !usage) return std::nullopt;
  const std::uint64_t cache = read_field(group / "memory.stat", cache_field).value_or(0);
  const std::uint64_t taken = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, taken);
}

}  // namespace

std::uint64_t available_memory(const fs::path& meminfo, const fs::path& membership,
                               const fs::path& mount) {
  std::uint64_t available = 1024 * read_field(meminfo, "MemAvailable:").value_or(0);
  for (const fs::path& group : control_group_folders("memory", membership, mount)) {
    for (const auto& left : {left_in_group(group, "memory.max", "memory.current", "inactive_file"),
                             left_in_group(group, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                           "total_inactive_file")}) {
      available = std::min(available, left.value_or(available));
    }
  }
  return available;
}

std::uint64_t available_memory() {
  return available_memory("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup");
}

}  // namespace espalier::base
