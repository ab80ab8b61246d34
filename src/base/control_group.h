#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace espalier::base {

/// The folders that limit this process through `controller` ("cpu", "memory"): its control group's
/// and the group's ancestors', v2 and v1, those that exist. A container may be told a path that its
/// mount does not have; the mount's root is then among them. `membership` is `/proc/self/cgroup`,
/// `mount` is `/sys/fs/cgroup`.
std::vector<std::filesystem::path> control_group_folders(const std::string& controller,
                                                         const std::filesystem::path& membership,
                                                         const std::filesystem::path& mount);

}  // namespace espalier::base
