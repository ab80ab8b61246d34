#include "base/processor_count.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <sched.h>

#include "base/control_group.h"

namespace espalier::base {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<double> ratio(double quota, double period) {
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

/// Version 2: one file, "QUOTA PERIOD" or "max PERIOD".
std::optional<double> quota_v2(const fs::path& group) {
  std::istringstream line(first_line(group / "cpu.max"));
  double quota = 0;
  double period = 0;
  if (!(line >> quota >> period)) return std::nullopt;
  return ratio(quota, period);
}

/// Version 1: two files; a quota of -1 means none.
std::optional<double> quota_v1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us");
  std::ifstream period_file(group / "cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  return ratio(quota, period);
}

}  // namespace

std::vector<int> allowed_processors() {
  // The kernel refuses a mask smaller than its own, so grow it until it fits.
  for (std::size_t count = 1024; count <= (1U << 20); count *= 2) {
    cpu_set_t* mask = CPU_ALLOC(count);
    if (mask == nullptr) return {};
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    const int status = sched_getaffinity(0, bytes, mask);
    const int error = errno;
    std::vector<int> processors;
    for (std::size_t i = 0; status == 0 && i < count; ++i) {
      if (CPU_ISSET_S(i, bytes, mask)) processors.push_back(static_cast<int>(i));
    }
    CPU_FREE(mask);
    if (status == 0 || error != EINVAL) return processors;
  }
  return {};
}

namespace {

/// Lets the calling thread run on `processors` alone; it is on one of them afterwards.
void restrict_to(const std::vector<int>& processors) {
  const auto count =
      static_cast<std::size_t>(*std::max_element(processors.begin(), processors.end()) + 1);
  cpu_set_t* mask = CPU_ALLOC(count);
  if (mask == nullptr) return;
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, mask);
  for (const int processor : processors) CPU_SET_S(processor, bytes, mask);
  sched_setaffinity(0, bytes, mask);
  CPU_FREE(mask);
}

}  // namespace

void move_off_processors(const std::vector<int>& allowed, const std::vector<int>& taken) {
  std::vector<int> left;
  for (const int processor : allowed) {
    if (std::find(taken.begin(), taken.end(), processor) == taken.end()) left.push_back(processor);
  }
  if (left.empty()) return;
  restrict_to(left);
  restrict_to(allowed);
}

int count_cores(const std::vector<int>& processors, const fs::path& folder) {
  std::set<std::string> cores;
  for (const int processor : processors) {
    const std::string name = "cpu" + std::to_string(processor);
    const std::string siblings = first_line(folder / name / "topology" / "thread_siblings_list");
    cores.insert(siblings.empty() ? name : siblings);
  }
  return static_cast<int>(cores.size());
}

std::optional<double> control_group_quota(const fs::path& membership, const fs::path& mount) {
  std::optional<double> smallest;
  const auto consider = [&](const std::optional<double>& quota) {
    if (quota && (!smallest || *quota < *smallest)) smallest = quota;
  };
  for (const fs::path& group : control_group_folders("cpu", membership, mount)) {
    consider(quota_v2(group));
    consider(quota_v1(group));
  }
  return smallest;
}

}  // namespace espalier::base
