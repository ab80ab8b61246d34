#pragma once

#include <cstdint>

#include "mlx/mlx.h"

namespace espalier::kernels {

/// An uninitialized uint8 array of at least `bytes`, aligned to 64 bytes, as a part of memory on
/// huge pages where the system gives them: a decoding step reads every weight once, and its misses
/// of the translation cache cost a third of the bandwidth (Zen 3, one core: 8 GB/s on 4 KB pages,
/// 12 on 2 MB ones). Matrices share chunks, since most are smaller than a huge page; a chunk is
/// freed with the last array in it. Thread-safe.
mlx::core::array allocate_on_huge_pages(std::int64_t bytes);

}  // namespace espalier::kernels
