#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/attention.h"
#include "mlx/mlx.h"
#include "state/recurrent_pool.h"

namespace espalier::state {

/// How far back the queries of a layer see.
struct KvReach {
  int window = 0;  // a query at p sees keys (p - window, p]; 0: all
  int chunk = 0;   // a query at p sees keys from p / chunk * chunk on; 0: all

  bool limited() const { return window > 0 || chunk > 0; }
  /// The first key that a query at `position`, or at any later one, sees.
  int first_seen(int position) const;

  bool operator==(const KvReach&) const = default;
};

/// What one attention layer keeps per token.
struct KvLayerShape {
  int kv_heads;
  int head_dim;  // of keys
  /// Of values; absent: as of keys; 0: values are part of the keys.
  std::optional<int> value_dim = {};
  KvReach reach = {};

  int values() const { return value_dim.value_or(head_dim); }
};

/// The recurrent layers beside the attention layers, and how many sequences they have room for.
struct RecurrentOptions {
  std::vector<RecurrentLayerShape> layers = {};
  int slots = 0;
};

/// The paged KV memory of one model, and the recurrent memory beside it: `blocks` KV blocks of
/// `kernels::kv_block_tokens` tokens in every layer. Layers with the same reach form a group, in
/// which block b of a sequence is block b of all layers; group 0 has the layers that see
/// everything. Memory is reserved at construction and becomes resident only as blocks are written:
/// of a group with a limited reach no more than its sequences see at a time, since blocks that they
/// have passed are handed out again first. Used from the engine's thread alone.
class KvPool {
 public:
  KvPool(std::vector<KvLayerShape> layers, int blocks, mlx::core::Dtype dtype,
         const RecurrentOptions& recurrent = {});
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  /// Of each group.
  int blocks() const;
  int free_blocks(int group = 0) const;
  kernels::KvLayer& layer(int index);
  RecurrentPool& recurrent();

  int groups() const;
  const KvReach& reach(int group) const;
  int group_of(int layer) const;

  /// Bytes of one token in all layers.
  static std::size_t bytes_per_token(const std::vector<KvLayerShape>& layers,
                                     mlx::core::Dtype dtype);
  /// Bytes that the layers of limited reach hold at most of one sequence of `positions` tokens, of
  /// which up to `rows` are computed at a time.
  static std::size_t limited_bytes(const std::vector<KvLayerShape>& layers, mlx::core::Dtype dtype,
                                   int positions, int rows);

  /// A free block with reference count 1. Throws `std::logic_error` when none is left: admission
  /// reserved them.
  int allocate(int group = 0);
  void retain(int block, int group = 0);
  void release(int block, int group = 0);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The state of one sequence: its block tables, its slot of recurrent memory and how many tokens
/// they hold. Gives all back when destroyed. The pool must outlive it.
class SequenceState {
 public:
  /// Without recurrent layers there is no slot.
  static constexpr int no_slot = -1;

  explicit SequenceState(KvPool& pool);
  ~SequenceState();
  SequenceState(SequenceState&& other) noexcept;
  SequenceState& operator=(SequenceState&& other) noexcept;

  /// Tokens held so far = position of the next token.
  int length() const { return length_; }
  /// The pool's block of each `kernels::kv_block_tokens` tokens in a group's layers. Blocks that
  /// the group's queries have passed were given back; in their place stands the first that is held.
  const std::vector<int>& block_table(int group = 0) const { return tables_.at(group).blocks; }
  int slot() const { return slot_; }

  /// Makes room for `rows` more tokens, giving back the KV blocks that were passed and allocating
  /// others as needed.
  void extend(int rows);
  /// Counts `rows` tokens as written.
  void advance(int rows) { length_ += rows; }

  /// A second sequence with the same tokens, which shares the KV blocks and has a copy of the
  /// recurrent state: a snapshot that can go on by itself. To be called with the length at a KV
  /// block's end (else `std::logic_error`) while nothing computes.
  SequenceState fork() const;

 private:
  struct Table {
    std::vector<int> blocks = {};
    int passed = 0;  // how many of them were given back
  };

  void release();

  KvPool* pool_;
  std::vector<Table> tables_;  // of each group
  int slot_ = no_slot;
  int length_ = 0;
};

}  // namespace espalier::state
