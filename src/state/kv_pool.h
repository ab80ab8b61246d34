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

/// What one attention layer keeps per token.
struct KvLayerShape {
  int kv_heads;
  int head_dim;  // of keys
  /// Of values; absent: as of keys; 0: values are part of the keys.
  std::optional<int> value_dim = {};

  int values() const { return value_dim.value_or(head_dim); }
};

/// The recurrent layers beside the attention layers, and how many sequences they have room for.
struct RecurrentOptions {
  std::vector<RecurrentLayerShape> layers = {};
  int slots = 0;
};

/// The paged KV memory of one model, and the recurrent memory beside it: `blocks` KV blocks of
/// `kernels::kv_block_tokens` tokens in every layer; block b of a sequence is block b of all
/// layers. Memory is reserved at construction and becomes resident only as blocks are written. Used
/// from the engine's thread alone.
class KvPool {
 public:
  KvPool(std::vector<KvLayerShape> layers, int blocks, mlx::core::Dtype dtype,
         const RecurrentOptions& recurrent = {});
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  int blocks() const;
  int free_blocks() const;
  kernels::KvLayer& layer(int index);
  RecurrentPool& recurrent();

  /// Bytes of one token in all layers.
  static std::size_t bytes_per_token(const std::vector<KvLayerShape>& layers,
                                     mlx::core::Dtype dtype);

  /// A free block with reference count 1. Throws `std::logic_error` when none is left: admission
  /// reserved them.
  int allocate();
  void retain(int block);
  void release(int block);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The state of one sequence: its block table, its slot of recurrent memory and how many tokens
/// they hold. Gives both back when destroyed. The pool must outlive it.
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
  const std::vector<int>& block_table() const { return block_table_; }
  int slot() const { return slot_; }

  /// Makes room for `rows` more tokens, allocating KV blocks as needed.
  void extend(int rows);
  /// Counts `rows` tokens as written.
  void advance(int rows) { length_ += rows; }

  /// A second sequence with the same tokens, which shares the KV blocks and has a copy of the
  /// recurrent state: a snapshot that can go on by itself. To be called with the length at a KV
  /// block's end (else `std::logic_error`) while nothing computes.
  SequenceState fork() const;

 private:
  void release();

  KvPool* pool_;
  std::vector<int> block_table_;
  int slot_ = no_slot;
  int length_ = 0;
};

}  // namespace espalier::state
