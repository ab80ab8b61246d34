#include "state/kv_pool.h"

#include <stdexcept>
#include <utility>

namespace espalier::state {
namespace {

namespace mx = mlx::core;

/// Of the pool's memory, so that a KV block's rows do not straddle cache lines.
constexpr std::size_t alignment = 64;

/// An array over fresh memory that nobody has touched yet: a large allocation is a mapping of its
/// own, whose pages become resident only when written.
mx::array reserve(mx::Shape shape, mx::Dtype dtype) {
  mx::array array(std::move(shape), dtype, nullptr, {});
  auto data = mx::allocator::malloc(array.nbytes() + alignment);
  const auto address = reinterpret_cast<std::uintptr_t>(data.buffer().raw_ptr());
  const auto offset = static_cast<std::int64_t>((alignment - address % alignment) % alignment);
  const auto strides = array.strides();
  const std::size_t size = array.size();
  array.set_data(std::move(data), size, strides,
                 {.contiguous = true, .row_contiguous = true, .col_contiguous = false}, offset);
  array.set_status(mx::array::Status::available);
  return array;
}

}  // namespace

struct KvPool::Impl {
  std::vector<kernels::KvLayer> layers;
  std::vector<int> references;  // of each block
  std::vector<int> free;        // the next to hand out last
};

KvPool::KvPool(std::vector<KvLayerShape> layers, int blocks, mx::Dtype dtype)
    : impl_(std::make_unique<Impl>()) {
  constexpr int tokens = kernels::kv_block_tokens;
  for (const KvLayerShape& shape : layers) {
    impl_->layers.push_back(
        {.keys = reserve({blocks, shape.kv_heads, shape.head_dim, tokens}, dtype),
         .values = reserve({blocks, shape.kv_heads, tokens, shape.head_dim}, dtype)});
  }
  impl_->references.assign(blocks, 0);
  for (int block = blocks - 1; block >= 0; --block) {
    impl_->free.push_back(block);
  }
}

KvPool::~KvPool() = default;

int KvPool::blocks() const { return static_cast<int>(impl_->references.size()); }

int KvPool::free_blocks() const { return static_cast<int>(impl_->free.size()); }

kernels::KvLayer& KvPool::layer(int index) { return impl_->layers.at(index); }

std::size_t KvPool::bytes_per_token(const std::vector<KvLayerShape>& layers, mx::Dtype dtype) {
  std::size_t elements = 0;
  for (const KvLayerShape& shape : layers) {
    elements += 2 * static_cast<std::size_t>(shape.kv_heads) * shape.head_dim;
  }
  return elements * mx::size_of(dtype);
}

int KvPool::allocate() {
  if (impl_->free.empty()) {
    throw std::logic_error("[KvPool::allocate] expected a free block, none is left");
  }
  // The block freed last: its pages are resident already.
  const int block = impl_->free.back();
  impl_->free.pop_back();
  impl_->references[block] = 1;
  return block;
}

void KvPool::retain(int block) {
  if (impl_->references.at(block) < 1) {
    throw std::logic_error("[KvPool::retain] expected a block in use");
  }
  ++impl_->references[block];
}

void KvPool::release(int block) {
  if (impl_->references.at(block) < 1) {
    throw std::logic_error("[KvPool::release] expected a block in use");
  }
  if (--impl_->references[block] == 0) {
    impl_->free.push_back(block);
  }
}

SequenceState::SequenceState(KvPool& pool) : pool_(&pool) {}

SequenceState::~SequenceState() { release_blocks(); }

SequenceState::SequenceState(SequenceState&& other) noexcept
    : pool_(other.pool_),
      block_table_(std::exchange(other.block_table_, {})),
      length_(std::exchange(other.length_, 0)) {}

SequenceState& SequenceState::operator=(SequenceState&& other) noexcept {
  if (this != &other) {
    release_blocks();
    pool_ = other.pool_;
    block_table_ = std::exchange(other.block_table_, {});
    length_ = std::exchange(other.length_, 0);
  }
  return *this;
}

void SequenceState::extend(int rows) {
  while (static_cast<int>(block_table_.size()) * kernels::kv_block_tokens < length_ + rows) {
    block_table_.push_back(pool_->allocate());
  }
}

void SequenceState::release_blocks() {
  // Last first, so that the next sequence gets them in order again.
  while (!block_table_.empty()) {
    pool_->release(block_table_.back());
    block_table_.pop_back();
  }
}

}  // namespace espalier::state
