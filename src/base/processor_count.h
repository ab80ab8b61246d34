#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace espalier::base {

/// The logical processors in this thread's affinity mask, ascending; empty when the system does not
/// tell.
std::vector<int> allowed_processors();

/// Moves the calling thread to one of `allowed` that is not `taken`, then lets it run on all of
/// `allowed` again. Does nothing when none is left or the system refuses.
void move_off_processors(const std::vector<int>& allowed, const std::vector<int>& taken);

/// How many cores `processors` lie on: SMT siblings count once. `folder` is
/// `/sys/devices/system/cpu`; a processor without topology there counts as a core of its own.
int count_cores(const std::vector<int>& processors, const std::filesystem::path& folder);

/// The processor quota of the control group this process is in, in processors: the smallest of the
/// group's and its ancestors', v2 or v1. Nothing when there is none. `membership` is
/// `/proc/self/cgroup`, `mount` is `/sys/fs/cgroup`.
std::optional<double> control_group_quota(const std::filesystem::path& membership,
                                          const std::filesystem::path& mount);

}  // namespace espalier::base
