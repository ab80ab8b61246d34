#pragma once

#include <cstdint>
#include <filesystem>

namespace espalier::base {

/// Bytes this process may still take before the system swaps or kills it: what `meminfo`
/// (`/proc/meminfo`) calls available, and at most what its control groups leave, where page cache
/// that can be dropped counts as free. 0 when the system does not tell. The other arguments are as
/// in `control_group_folders`.
std::uint64_t available_memory(const std::filesystem::path& meminfo,
                               const std::filesystem::path& membership,
                               const std::filesystem::path& mount);

/// The same for the running system.
std::uint64_t available_memory();

}  // namespace espalier::base
