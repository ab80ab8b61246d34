#include "arrays/lfs_pointer.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace espalier::arrays {

void refuse_lfs_pointer(std::span<const std::byte> file, const std::string& path) {
  constexpr std::string_view mark = "version https://git-lfs";
  const auto* text = reinterpret_cast<const char*>(file.data());
  if (std::string_view(text, std::min(file.size(), mark.size())) != mark) return;
  throw base::LoadError(path +
                        " is a pointer of Git LFS, not the file itself: git lfs pull gets it");
}

}  // namespace espalier::arrays
