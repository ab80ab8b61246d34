#include "state/kv_pool.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "state/reserved_memory.h"

namespace espalier::state {

namespace mx = mlx::core;

struct KvPool::Impl {
  struct Group {
    KvReach reach;
    std::vector<int> references = {};  // of each block
    std::vector<int> free = {};        // the next to hand out last
  };

  explicit Impl(const RecurrentOptions& options) : recurrent(options.layers, options.slots) {}

  Group& group(int index) { return groups.at(index); }
  /// The group of that reach, which is added if there is none.
  int find_group(const KvReach& reach) {
    const auto found = std::ranges::find(groups, reach, &Group::reach);
    const auto index = static_cast<int>(found - groups.begin());
    if (found == groups.end()) {
      groups.push_back({.reach = reach});
    }
    return index;
  }

  RecurrentPool recurrent;
  std::vector<kernels::KvLayer> layers;
  std::vector<int> layer_groups;
  std::vector<Group> groups = {Group{.reach = {}}};
};

int KvReach::first_seen(int position) const {
  const int of_window = window > 0 ? std::max(position - window + 1, 0) : 0;
  const int of_chunk = chunk > 0 ? position / chunk * chunk : 0;
  return std::max(of_window, of_chunk);
}

KvPool::KvPool(std::vector<KvLayerShape> layers, int blocks, mx::Dtype dtype,
               const RecurrentOptions& recurrent)
    : impl_(std::make_unique<Impl>(recurrent)) {
  constexpr int tokens = kernels::kv_block_tokens;
  for (const KvLayerShape& shape : layers) {
    impl_->layers.push_back(
        {.keys = reserve_memory({blocks, shape.kv_heads, shape.head_dim, tokens}, dtype),
         .values = reserve_memory({blocks, shape.kv_heads, tokens, shape.values()}, dtype)});
    impl_->layer_groups.push_back(impl_->find_group(shape.reach));
  }
  for (Impl::Group& group : impl_->groups) {
    group.references.assign(blocks, 0);
    for (int block = blocks - 1; block >= 0; --block) {
      group.free.push_back(block);
    }
  }
}

KvPool::~KvPool() = default;

int KvPool::blocks() const { return static_cast<int>(impl_->groups.front().references.size()); }

int KvPool::free_blocks(int group) const {
  return static_cast<int>(impl_->group(group).free.size());
}

kernels::KvLayer& KvPool::layer(int index) { return impl_->layers.at(index); }

RecurrentPool& KvPool::recurrent() { return impl_->recurrent; }

int KvPool::groups() const { return static_cast<int>(impl_->groups.size()); }

const KvReach& KvPool::reach(int group) const { return impl_->group(group).reach; }

int KvPool::group_of(int layer) const { return impl_->layer_groups.at(layer); }

std::size_t KvPool::bytes_per_token(const std::vector<KvLayerShape>& layers, mx::Dtype dtype) {
  std::size_t elements = 0;
  for (const KvLayerShape& shape : layers) {
    elements += static_cast<std::size_t>(shape.kv_heads) * (shape.head_dim + shape.values());
  }
  return elements * mx::size_of(dtype);
}

std::size_t KvPool::limited_bytes(const std::vector<KvLayerShape>& layers, mx::Dtype dtype,
                                  int positions, int rows) {
  constexpr std::int64_t tokens = kernels::kv_block_tokens;
  std::size_t bytes = 0;
  for (const KvLayerShape& shape : layers) {
    if (!shape.reach.limited()) {
      continue;
    }
    const std::int64_t seen = std::max(shape.reach.window, shape.reach.chunk);
    // What is seen may begin and end inside a block.
    const std::int64_t held = std::min<std::int64_t>(seen + rows + tokens, positions);
    bytes += static_cast<std::size_t>((held + tokens - 1) / tokens * tokens) *
             bytes_per_token({shape}, dtype);
  }
  return bytes;
}

int KvPool::allocate(int group) {
  std::vector<int>& free = impl_->group(group).free;
  if (free.empty()) {
    throw std::logic_error("[KvPool::allocate] expected a free block, none is left");
  }
  // The block freed last: its pages are resident already.
  const int block = free.back();
  free.pop_back();
  impl_->group(group).references[block] = 1;
  return block;
}

void KvPool::retain(int block, int group) {
  int& references = impl_->group(group).references.at(block);
  if (references < 1) {
    throw std::logic_error("[KvPool::retain] expected a block in use");
  }
  ++references;
}

void KvPool::release(int block, int group) {
  int& references = impl_->group(group).references.at(block);
  if (references < 1) {
    throw std::logic_error("[KvPool::release] expected a block in use");
  }
  if (--references == 0) {
    impl_->group(group).free.push_back(block);
  }
}

SequenceState::SequenceState(KvPool& pool)
    : pool_(&pool), tables_(static_cast<std::size_t>(pool.groups())) {
  if (!pool.recurrent().empty()) {
    slot_ = pool.recurrent().allocate();
  }
}

SequenceState::~SequenceState() { release(); }

SequenceState::SequenceState(SequenceState&& other) noexcept
    : pool_(other.pool_),
      tables_(std::exchange(other.tables_, {})),
      slot_(std::exchange(other.slot_, no_slot)),
      length_(std::exchange(other.length_, 0)) {}

SequenceState& SequenceState::operator=(SequenceState&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = other.pool_;
    tables_ = std::exchange(other.tables_, {});
    slot_ = std::exchange(other.slot_, no_slot);
    length_ = std::exchange(other.length_, 0);
  }
  return *this;
}

void SequenceState::extend(int rows) {
  constexpr int tokens = kernels::kv_block_tokens;
  for (int group = 0; group < static_cast<int>(tables_.size()); ++group) {
    auto& [blocks, passed] = tables_[group];
    const int held_before = passed;
    const int first =
        std::min(pool_->reach(group).first_seen(length_) / tokens, static_cast<int>(blocks.size()));
    for (; passed < first; ++passed) {
      pool_->release(blocks[passed], group);
    }
    while (static_cast<int>(blocks.size()) * tokens < length_ + rows) {
      blocks.push_back(pool_->allocate(group));
    }
    if (passed > held_before && passed < static_cast<int>(blocks.size())) {
      std::fill_n(blocks.begin(), passed, blocks[passed]);
    }
  }
}

SequenceState SequenceState::fork() const {
  if (length_ % kernels::kv_block_tokens != 0) {
    throw std::logic_error("[SequenceState::fork] expected a length at a KV block's end");
  }
  SequenceState copy(*pool_);
  const int count = length_ / kernels::kv_block_tokens;
  for (int group = 0; group < static_cast<int>(tables_.size()); ++group) {
    const Table& table = tables_[group];
    copy.tables_[group].passed = table.passed;
    copy.tables_[group].blocks.assign(table.blocks.begin(), table.blocks.begin() + count);
    for (int i = table.passed; i < count; ++i) {
      pool_->retain(table.blocks[i], group);
    }
  }
  if (slot_ != no_slot) {
    pool_->recurrent().copy(slot_, copy.slot_);
  }
  copy.length_ = length_;
  return copy;
}

void SequenceState::release() {
  for (int group = 0; group < static_cast<int>(tables_.size()); ++group) {
    auto& [blocks, passed] = tables_[group];
    // Last first, so that the next sequence gets them in order again.
    for (; static_cast<int>(blocks.size()) > passed; blocks.pop_back()) {
      pool_->release(blocks.back(), group);
    }
    blocks.clear();
    passed = 0;
  }
  if (slot_ != no_slot) {
    pool_->recurrent().release(std::exchange(slot_, no_slot));
  }
}

}  // namespace espalier::state
