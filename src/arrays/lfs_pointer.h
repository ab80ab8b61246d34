#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace espalier::arrays {

/// Throws `LoadError` when `file` is what Git leaves in place of one that LFS keeps.
void refuse_lfs_pointer(std::span<const std::byte> file, const std::string& path);

}  // namespace espalier::arrays
