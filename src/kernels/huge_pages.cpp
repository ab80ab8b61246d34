#include "kernels/huge_pages.h"

#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>

#include <sys/mman.h>

namespace espalier::kernels {

namespace mx = mlx::core;

namespace {

constexpr std::int64_t cache_line = 64;
constexpr std::int64_t huge_page = std::int64_t{2} << 20;
constexpr std::int64_t chunk_bytes = std::int64_t{32} << 20;

/// Memory of which the bytes from `used` on, up to `size`, are free.
struct Chunk {
  mx::array memory;
  std::int64_t used;
  std::int64_t size;
};

Chunk make_chunk(std::int64_t bytes) {
  const std::int64_t size = bytes + huge_page;
  auto data = mx::allocator::malloc(size);
  const auto begin = reinterpret_cast<std::uintptr_t>(data.buffer().raw_ptr());
  const auto first = (begin + huge_page - 1) / huge_page * huge_page;
  const auto last = (begin + size) / huge_page * huge_page;
  if (last > first) {
    madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // advice: may fail
  }
  // In lines, since the bytes of a large matrix overflow an extent.
  mx::array memory(std::move(data), {static_cast<int>(size / cache_line), cache_line}, mx::uint8);
  return {std::move(memory), static_cast<std::int64_t>(first - begin), size};
}

mx::array take(Chunk& chunk, std::int64_t bytes) {
  const int lines = static_cast<int>((bytes + cache_line - 1) / cache_line);
  // Evaluated and without inputs: only its buffer is replaced.
  mx::array part(mx::allocator::malloc(0), mx::Shape{lines, cache_line}, mx::uint8);
  part.copy_shared_buffer(chunk.memory, part.strides(), part.flags(), part.size(), chunk.used);
  chunk.used += lines * cache_line;
  return part;
}

}  // namespace

mx::array allocate_on_huge_pages(std::int64_t bytes) {
  if (bytes > chunk_bytes / 4) {
    Chunk own = make_chunk(bytes);
    return take(own, bytes);
  }
  static std::mutex mutex;
  static std::optional<Chunk> current;
  const std::lock_guard lock(mutex);
  // When nobody else holds the chunk, its matrices are gone: start over in fresh memory.
  if (!current || current->used + bytes > current->size ||
      current->memory.data_shared_ptr().use_count() == 1) {
    current = make_chunk(chunk_bytes);
  }
  return take(*current, bytes);
}

}  // namespace espalier::kernels
