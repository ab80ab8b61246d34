#include "state/kv_pool.h"

#include <stdexcept>
#include <utility>

#include "state/reserved_memory.h"

namespace espalier::state {

namespace mx = mlx::core;

struct KvPool::Impl {
  explicit Impl(const RecurrentOptions& options) : recurrent(options.layers, options.slots) {}

  RecurrentPool recurrent;
  std::vector<kernels::KvLayer> layers;
  std::vector<int> references;  // of each block
  std::vector<int> free;        // the next to hand out last
};

KvPool::KvPool(std::vector<KvLayerShape> layers, int blocks, mx::Dtype dtype,
               const RecurrentOptions& recurrent)
    : impl_(std::make_unique<Impl>(recurrent)) {
  constexpr int tokens = kernels::kv_block_tokens;
  for (const KvLayerShape& shape : layers) {
    impl_->layers.push_back(
        {.keys = reserve_memory({blocks, shape.kv_heads, shape.head_dim, tokens}, dtype),
         .values = reserve_memory({blocks, shape.kv_heads, tokens, shape.values()}, dtype)});
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

RecurrentPool& KvPool::recurrent() { return impl_->recurrent; }

std::size_t KvPool::bytes_per_token(const std::vector<KvLayerShape>& layers, mx::Dtype dtype) {
  std::size_t elements = 0;
  for (const KvLayerShape& shape : layers) {
    elements += static_cast<std::size_t>(shape.kv_heads) * (shape.head_dim + shape.values());
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

SequenceState::SequenceState(KvPool& pool) : pool_(&pool) {
  if (!pool.recurrent().empty()) {
    slot_ = pool.recurrent().allocate();
  }
}

SequenceState::~SequenceState() { release(); }

SequenceState::SequenceState(SequenceState&& other) noexcept
    : pool_(other.pool_),
      block_table_(std::exchange(other.block_table_, {})),
      slot_(std::exchange(other.slot_, no_slot)),
      length_(std::exchange(other.length_, 0)) {}

SequenceState& SequenceState::operator=(SequenceState&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = other.pool_;
    block_table_ = std::exchange(other.block_table_, {});
    slot_ = std::exchange(other.slot_, no_slot);
    length_ = std::exchange(other.length_, 0);
  }
  return *this;
}

void SequenceState::extend(int rows) {
  while (static_cast<int>(block_table_.size()) * kernels::kv_block_tokens < length_ + rows) {
    block_table_.push_back(pool_->allocate());
  }
}

SequenceState SequenceState::fork() const {
  if (length_ % kernels::kv_block_tokens != 0) {
    throw std::logic_error("[SequenceState::fork] expected a length at a KV block's end");
  }
  SequenceState copy(*pool_);
  const auto blocks = static_cast<std::ptrdiff_t>(length_ / kernels::kv_block_tokens);
  copy.block_table_.assign(block_table_.begin(), block_table_.begin() + blocks);
  for (const int block : copy.block_table_) {
    pool_->retain(block);
  }
  if (slot_ != no_slot) {
    pool_->recurrent().copy(slot_, copy.slot_);
  }
  copy.length_ = length_;
  return copy;
}

void SequenceState::release() {
  // Last first, so that the next sequence gets them in order again.
  while (!block_table_.empty()) {
    pool_->release(block_table_.back());
    block_table_.pop_back();
  }
  if (slot_ != no_slot) {
    pool_->recurrent().release(std::exchange(slot_, no_slot));
  }
}

}  // namespace espalier::state
