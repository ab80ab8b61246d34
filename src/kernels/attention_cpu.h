#pragma once

#include "kernels/element.h"
#include "kernels/kv_block.h"

namespace espalier::kernels {

/// Keys per softmax chunk: chunk c holds the keys from c * attention_chunk_tokens on, counted from
/// the sequence's start wherever a query or a window begins.
inline constexpr int attention_chunk_tokens = 128;
static_assert(attention_chunk_tokens % kv_block_tokens == 0);

/// Query rows (positions times the heads that share a kv head) that pass over the keys together.
inline constexpr int attention_tile_rows = 48;

/// One attention node at work: plain pointers and sizes, so that code compiled for one instruction
/// set sees no library types.
struct AttentionCall {
  int rows;          // T
  int kv_heads;      // Hk
  int group;         // query heads per kv head
  int head_dim;      // D
  int stride;        // floats between rows of D floats, a multiple of 16
  int value_dim;     // Dv
  int value_stride;  // floats between rows of Dv floats, a multiple of 16
  /// Where in a key the values lie; negative where they have a pool of their own.
  int value_offset;
  float scale;
  int window;
  int chunk;
  float softcap;
  ElementType io_type;
  ElementType kv_type;
  const void* qkv;  // [T, (H + Hk) D + Hk Dv] of io_type
  int qkv_columns;
  void* keys;             // [blocks, Hk, D, kv_block_tokens] of kv_type
  void* values;           // [blocks, Hk, kv_block_tokens, Dv] of kv_type
  void* out;              // [T, H Dv] of io_type
  const float* q_weight;  // [D], null without norm
  const float* k_weight;
  const float* v_weight;  // [Dv]
  float q_eps;
  float k_eps;
  float v_eps;
  bool norm_after_rope;
  bool shared_kv;
  const float* sinks;          // [H] or null
  const float* alibi_slopes;   // [H] or null
  const float* query_factors;  // [T] or null
  const float* rope;           // [T, 2, rope_dims], see rope_table.h; null without rope
  int rope_dims;
  bool rope_interleaved;
  float* queries;  // [Hk, T, group, stride]: normalized, rotated and scaled
};

/// Rows of one sequence at one kv head.
struct AttentionSpan {
  const int* block_table;  // of the sequence
  int kv_head;
  int row;       // of the first row, in [0, T)
  int position;  // of the first row, in the sequence
  int count;     // rows
};

/// The results of one chunk for `count * group` rows: each row's maximum, sum and weighted sum of
/// values, from which the output is merged in chunk order.
struct AttentionPartial {
  float* maxima;  // [count * group], minus infinity where a row sees no key of the chunk
  float* sums;    // [count * group]
  float* values;  // [count * group, value_stride]
};

/// Floats of one partial result.
constexpr int partial_floats(int rows, int value_stride) { return rows * (value_stride + 2); }

/// The chunks [first_chunk, last_chunk) of a span. With `partials`, where chunk `first_chunk + i`
/// has partial_floats(count * group, value_stride) floats from i times as many on, the results are
/// left there; without, they are merged into the output.
struct AttentionTask {
  AttentionSpan span;
  int first_chunk;
  int last_chunk;
  float* partials;
};

/// The kernels of `attention` for one instruction set, in three phases: the tasks of a phase are
/// independent, and a phase begins when the one before has ended.
struct AttentionCpu {
  /// Queries and pool entries of a span that lies within one KV block.
  void (*prepare)(const AttentionCall& call, const AttentionSpan& span, float* scratch);
  void (*attend)(const AttentionCall& call, const AttentionTask& task, float* scratch);
  /// The output of a task whose partial results are there.
  void (*merge)(const AttentionCall& call, const AttentionTask& task, float* scratch);
};

/// Positions that one task of many rows takes.
constexpr int attention_tile_positions(int group) {
  return group >= attention_tile_rows ? 1 : attention_tile_rows / group;
}

/// Floats of scratch memory that each worker needs.
constexpr int attention_scratch_floats(int group, int stride, int value_stride) {
  const int rows = attention_tile_positions(group) * group;
  // Scores, one KV block in f32, a partial result and the merged one.
  return rows * attention_chunk_tokens +
         kv_block_tokens * (stride > value_stride ? stride : value_stride) +
         2 * partial_floats(rows, value_stride);
}

const AttentionCpu& attention_cpu_scalar();
const AttentionCpu& attention_cpu_avx2();
const AttentionCpu& attention_cpu_avx512();

/// Those of `instruction_set()`.
const AttentionCpu& attention_cpu();

}  // namespace espalier::kernels
