#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/attention_cpu.h"
#include "kernels/attention_tile.h"
#include "kernels/element_row.h"
#include "kernels/norm_kernel.h"
#include "kernels/rms_norm_row.h"
#include "kernels/vector_math.h"

namespace espalier::kernels {

/// Where a row of queries stands against the keys of one chunk: it sees [first, last), counted from
/// the chunk's start; nothing when last <= first.
struct KeyRange {
  int first;
  int last;
};

/// The phases of attention over lanes `V` (see `AttentionCpu`), for qkv and pool in f32, f16 and
/// bf16, any D and any group; D that V::width divides reads the pool without a copy. Every lane is
/// one key (scores) or one element of a head (weighted values), and sums run over elements or keys
/// one by one in order by fused multiply-add, so a row's bits depend neither on the width of a
/// vector nor on which other rows share its tile. The sum of a chunk's weights takes key i to
/// partial sum i mod 16.
///
/// What limits it (GCC 12.2, one thread of a busy Zen 3 core at 2.5 GHz, where fused multiply-adds
/// alone reach 20 G/s, 9 heads over 3 kv heads of 64, f16 pool; bench/attention_bench.cpp): prefill
/// is bound by multiply-adds, 16 G/s for 512 rows from position 0 and 22 G/s behind 2,048 keys, of
/// which the exponentials take a fifth. Decode is bound by the latency of fetching KV blocks of
/// 4 KB each: 360 us at 2,048 keys, 280 us since the next block is fetched meanwhile.
/// In AVX-512 a row of values is two cache lines: fetching both of them took decoding at 7,900 keys
/// from 49 to 67 tokens/s (SmolLM2-135M, two Xeon cores, one pair of runs).
template <class V>
class AttentionKernel {
 public:
  static void prepare(const AttentionCall& call, const AttentionSpan& span, float* scratch) {
    with_element(call.io_type, [&](auto io) {
      with_element(call.kv_type, [&](auto kv) { prepare_rows(call, span, scratch, io, kv); });
    });
  }

  static void attend(const AttentionCall& call, const AttentionTask& task, float* scratch) {
    with_element(call.kv_type, [&](auto kv) {
      AttentionKernel(call, task.span, scratch).attend_chunks(task, kv);
    });
  }

  static void merge(const AttentionCall& call, const AttentionTask& task, float* scratch) {
    AttentionKernel kernel(call, task.span, scratch);
    kernel.clear_merged();
    for (int chunk = task.first_chunk; chunk < task.last_chunk; ++chunk) {
      kernel.merge_partial(kernel.partial_of(task, chunk));
    }
    kernel.write_output();
  }

 private:
  using Float = typename V::Float;
  using Tile = AttentionTile<V>;

  AttentionKernel(const AttentionCall& call, const AttentionSpan& span, float* scratch)
      : call_(call), span_(span), rows_(span.count * call.group), scores_(scratch) {
    block_ = scores_ + rows_ * attention_chunk_tokens;
    float* partials =
        block_ +
        kv_block_tokens * (call.stride > call.value_stride ? call.stride : call.value_stride);
    partial_ = partial_at(partials);
    merged_ = partial_at(partials + partial_floats(rows_, call.value_stride));
  }

  template <class Io, class Kv>
  static void prepare_rows(const AttentionCall& call, const AttentionSpan& span, float* scratch,
                           const Io*, const Kv*) {
    const int d = call.head_dim;
    const int heads = call.kv_heads * call.group;
    const int first_slot = span.position % kv_block_tokens;
    const long block = span.block_table[span.position / kv_block_tokens];
    const long block_tokens = (block * call.kv_heads + span.kv_head) * kv_block_tokens;
    Kv* keys = static_cast<Kv*>(call.keys) + block_tokens * d + first_slot;
    Kv* values = static_cast<Kv*>(call.values) + (block_tokens + first_slot) * call.value_dim;
    float* rotated = scratch + call.stride;
    Kv* stored = reinterpret_cast<Kv*>(rotated + call.stride);
    for (int i = 0; i < span.count; ++i) {
      const int row = span.row + i;
      const Io* qkv = static_cast<const Io*>(call.qkv) + static_cast<long>(row) * call.qkv_columns;
      float* queries = call.queries + (static_cast<long>(span.kv_head) * call.rows + row) *
                                          call.group * call.stride;
      const float scale =
          call.query_factors == nullptr ? call.scale : call.scale * call.query_factors[row];
      for (int j = 0; j < call.group; ++j) {
        float* query = queries + static_cast<long>(j) * call.stride;
        load_row<V>(qkv + (span.kv_head * call.group + j) * d, d, query);
        normalize_and_rotate(call, row, call.q_weight, call.q_eps, query, rotated);
        for (int e = 0; e < d; e += V::width) {
          V::store(query + e, V::mul(V::load(query + e), V::set(scale)));
        }
      }
      if (call.shared_kv) {
        continue;
      }
      float* key = scratch;
      load_row<V>(qkv + (heads + span.kv_head) * d, d, key);
      normalize_and_rotate(call, row, call.k_weight, call.k_eps, key, rotated);
      store_row<V>(key, d, stored);
      for (int e = 0; e < d; ++e) {
        keys[static_cast<long>(e) * kv_block_tokens + i] = stored[e];
      }
      if (call.value_offset >= 0) {
        continue;
      }
      const int dv = call.value_dim;
      float* value = scratch;
      load_row<V>(qkv + (heads + call.kv_heads) * d + span.kv_head * dv, dv, value);
      if (call.v_weight != nullptr) {
        rms_norm_in_place<V>(value, call.v_weight, dv, call.v_eps);
      }
      store_row<V>(value, dv, values + static_cast<long>(i) * dv);
    }
  }

  /// `partner` is scratch of `stride` floats.
  static void normalize_and_rotate(const AttentionCall& call, int row, const float* weight,
                                   float eps, float* x, float* partner) {
    if (weight != nullptr && !call.norm_after_rope) {
      rms_norm_in_place<V>(x, weight, call.head_dim, eps);
    }
    if (call.rope != nullptr) {
      rotate(call, call.rope + static_cast<long>(row) * 2 * call.rope_dims, x, partner);
    }
    if (weight != nullptr && call.norm_after_rope) {
      rms_norm_in_place<V>(x, weight, call.head_dim, eps);
    }
  }

  /// x = x cos + partner sin, where the partner of each element is the other of its pair.
  static void rotate(const AttentionCall& call, const float* cosines, float* x, float* partner) {
    const int dims = call.rope_dims;
    const int half = dims / 2;
    if (call.rope_interleaved) {
      for (int i = 0; i < half; ++i) {
        std::uint64_t pair;
        std::memcpy(&pair, x + 2 * i, sizeof pair);
        pair = pair >> 32 | pair << 32;
        std::memcpy(partner + 2 * i, &pair, sizeof pair);
      }
    } else {
      std::memcpy(partner, x + half, half * sizeof(float));
      std::memcpy(partner + half, x, half * sizeof(float));
    }
    const float* sines = cosines + dims;
    int i = 0;
    for (; i + V::width <= dims; i += V::width) {
      V::store(x + i, V::fma(V::load(partner + i), V::load(sines + i),
                             V::mul(V::load(x + i), V::load(cosines + i))));
    }
    for (; i < dims; ++i) {
      x[i] = __builtin_fmaf(partner[i], sines[i], x[i] * cosines[i]);
    }
  }

  template <class Kv>
  void attend_chunks(const AttentionTask& task, const Kv*) {
    if (task.partials == nullptr) {
      clear_merged();
    }
    for (int chunk = task.first_chunk; chunk < task.last_chunk; ++chunk) {
      if (task.partials != nullptr) {
        partial_ = partial_of(task, chunk);
      }
      attend_chunk<Kv>(chunk, chunk + 1 < task.last_chunk);
      if (task.partials == nullptr) {
        merge_partial(partial_);
      }
    }
    if (task.partials == nullptr) {
      write_output();
    }
  }

  /// `continues`: the next chunk comes right after, so its first keys are worth fetching.
  template <class Kv>
  void attend_chunk(int chunk, bool continues) {
    const int chunk_start = chunk * attention_chunk_tokens;
    const int first_block = key_range(chunk_start, 0).first / kv_block_tokens;
    const int last_block =
        (key_range(chunk_start, rows_ - 1).last + kv_block_tokens - 1) / kv_block_tokens;
    const auto keys = [&](int block) {
      return pool_block<Kv>(call_.keys, call_.head_dim, chunk_start, block);
    };
    const auto values = [&](int block) {
      return call_.value_offset >= 0
                 ? keys(block)
                 : pool_block<Kv>(call_.values, call_.value_dim, chunk_start, block);
    };
    for (int block = first_block; block < last_block; ++block) {
      score_block(chunk_start, block, keys(block),
                  block + 1 < last_block ? keys(block + 1) : values(first_block));
    }
    for (int row = 0; row < rows_; ++row) {
      weigh_row(key_range(chunk_start, row), chunk_start, row);
    }
    clear(partial_.values);
    for (int block = first_block; block < last_block; ++block) {
      add_values(chunk_start, block, values(block),
                 block + 1 < last_block ? values(block + 1)
                 : continues            ? keys(last_block)
                                        : values(block));
    }
  }

  /// The keys that a row sees of the chunk; both ends grow with the row.
  KeyRange key_range(int chunk_start, int row) const {
    const int position = span_.position + row / call_.group;
    int first = 0;
    if (call_.window > 0 && position - call_.window + 1 > chunk_start) {
      first = position - call_.window + 1 - chunk_start;
    }
    if (call_.chunk > 0) {
      const int start = position / call_.chunk * call_.chunk - chunk_start;
      first = start > first ? start : first;
    }
    int last = position + 1 - chunk_start;
    if (last > attention_chunk_tokens) {
      last = attention_chunk_tokens;
    }
    return {first, last};
  }

  /// A KV block of keys or values at this task's kv head.
  template <class Kv>
  const Kv* pool_block(const void* pool, int columns, int chunk_start, int block) const {
    const long index = span_.block_table[chunk_start / kv_block_tokens + block];
    return static_cast<const Kv*>(pool) +
           (index * call_.kv_heads + span_.kv_head) * kv_block_tokens * columns;
  }

  /// Few rows read the pool as it is; more share one conversion to f32.
  template <class Kv>
  bool reads_pool(const Kv*) const {
    return sizeof(Kv) == sizeof(float) || rows_ <= Tile::max_rows;
  }

  /// `ahead` is the block that is read next.
  template <class Kv>
  void score_block(int chunk_start, int block, const Kv* keys, const Kv* ahead) {
    if (reads_pool(keys)) {
      score_rows(chunk_start, block, keys, ahead);
    } else {
      load_row<V>(keys, call_.head_dim * kv_block_tokens, block_);
      score_rows<float>(chunk_start, block, block_, block_);
    }
  }

  template <class Key>
  void score_rows(int chunk_start, int block, const Key* keys, const Key* ahead) {
    const float* queries =
        call_.queries +
        (static_cast<long>(span_.kv_head) * call_.rows + span_.row) * call_.group * call_.stride;
    const int block_start = block * kv_block_tokens;
    for (int row = 0; row < rows_;) {
      const int count = Tile::rows_at_once(rows_ - row);
      const int visible = key_range(chunk_start, row + count - 1).last - block_start;
      const int columns = visible >= kv_block_tokens ? kv_block_tokens : round_up(visible);
      // Blocks and columns that no row of these sees are skipped.
      if (columns > 0 && key_range(chunk_start, row).first < block_start + kv_block_tokens) {
        Tile::template multiply<false>(
            count, call_.head_dim, columns,
            {queries + static_cast<long>(row) * call_.stride, call_.stride},
            typename Tile::template Right<Key>{keys, ahead, kv_block_tokens},
            {scores_ + row * attention_chunk_tokens + block_start, attention_chunk_tokens});
      }
      row += count;
    }
  }

  /// Turns a row's scores into weights.
  void weigh_row(KeyRange range, int chunk_start, int row) {
    float* scores = scores_ + row * attention_chunk_tokens;
    if (range.last <= range.first) {
      partial_.maxima[row] = -__builtin_inff();
      partial_.sums[row] = 0.0F;
      return;
    }
    const int begin = range.first / 16 * 16;
    const int end = (range.last + 15) / 16 * 16;
    if (call_.softcap > 0.0F) {
      const auto cap = V::set(call_.softcap);
      for (int i = begin; i < end; i += V::width) {
        V::store(scores + i, V::mul(cap, tanh<V>(V::div(V::load(scores + i), cap))));
      }
    }
    if (call_.alibi_slopes != nullptr) {
      // As multiples of the distance, so that far ahead in a text no digits are lost.
      const float slope = call_.alibi_slopes[head_of(row)];
      const int position = span_.position + row / call_.group;
      for (int i = range.first; i < range.last; ++i) {
        scores[i] += slope * static_cast<float>(chunk_start + i - position);
      }
    }
    for (int i = begin; i < range.first; ++i) {
      scores[i] = -__builtin_inff();
    }
    for (int i = range.last; i < end; ++i) {
      scores[i] = -__builtin_inff();
    }
    auto maxima = V::load(scores + begin);
    for (int i = begin + V::width; i < end; i += V::width) {
      maxima = V::max(V::load(scores + i), maxima);
    }
    float lanes[V::width];
    V::store(lanes, maxima);
    float maximum = lanes[0];
    for (int lane = 1; lane < V::width; ++lane) {
      maximum = lanes[lane] > maximum ? lanes[lane] : maximum;
    }
    partial_.maxima[row] = maximum;
    partial_.sums[row] = exponentiate(scores, begin, end, maximum);
  }

  /// scores = e^(scores - maximum) in [begin, end), multiples of 16; returns their sum.
  static float exponentiate(float* scores, int begin, int end, float maximum) {
    constexpr int parts = 16 / V::width;
    Float sums[parts];
    for (auto& sum : sums) {
      sum = V::zero();
    }
    const auto shift = V::set(maximum);
    for (int i = begin; i < end; i += 16) {
      for (int part = 0; part < parts; ++part) {
        float* place = scores + i + part * V::width;
        const auto weight = exp_nonpositive<V>(V::sub(V::load(place), shift));
        V::store(place, weight);
        sums[part] = V::add(sums[part], weight);
      }
    }
    return add_partial_sums<V>(sums);
  }

  template <class Kv>
  void add_values(int chunk_start, int block, const Kv* values, const Kv* ahead) {
    const int d = call_.value_dim;
    if (call_.value_offset >= 0) {
      turn_keys(values);
    } else if (reads_pool(values) && d % V::width == 0) {
      add_values_to_rows(chunk_start, block, typename Tile::template Right<Kv>{values, ahead, d});
      return;
    } else {
      for (int token = 0; token < kv_block_tokens; ++token) {
        load_row<V>(values + static_cast<long>(token) * d, d, block_ + token * call_.value_stride);
      }
    }
    add_values_to_rows(chunk_start, block,
                       typename Tile::template Right<float>{block_, block_, call_.value_stride});
  }

  /// block_ [tokens, value_stride] = the values within a block of keys [D, tokens].
  template <class Kv>
  void turn_keys(const Kv* keys) {
    float elements[kv_block_tokens];
    for (int e = 0; e < whole_vectors(); ++e) {
      if (e < call_.value_dim) {
        load_row<V>(keys + static_cast<long>(call_.value_offset + e) * kv_block_tokens,
                    kv_block_tokens, elements);
      }
      for (int token = 0; token < kv_block_tokens; ++token) {
        block_[token * call_.value_stride + e] = e < call_.value_dim ? elements[token] : 0.0F;
      }
    }
  }

  /// The query head of a row.
  int head_of(int row) const { return span_.kv_head * call_.group + row % call_.group; }

  /// Adds the weighted values of one block to each row: always key by key from the row's first to
  /// its last, whichever rows go together.
  template <class Right>
  void add_values_to_rows(int chunk_start, int block, const Right& values) {
    const int block_start = block * kv_block_tokens;
    const auto visible = [&](int row) {
      const KeyRange range = key_range(chunk_start, row);
      const int first = range.first - block_start;
      const int last = range.last - block_start;
      return KeyRange{first < 0 ? 0 : first, last > kv_block_tokens ? kv_block_tokens : last};
    };
    const auto add = [&](int row, int count, KeyRange keys) {
      if (keys.last > keys.first) {
        add_weighted(row, count, block_start, keys, values);
      }
    };
    for (int row = 0; row < rows_;) {
      const int count = Tile::rows_at_once(rows_ - row);
      // The heads of one position see the same keys.
      const auto each_position = [&](const auto& use) {
        for (int i = row; i < row + count;) {
          const int next = i + call_.group - i % call_.group;
          const int end = next < row + count ? next : row + count;
          use(i, end - i);
          i = end;
        }
      };
      const KeyRange common = {visible(row + count - 1).first, visible(row).last};
      if (common.last <= common.first) {
        each_position([&](int i, int n) { add(i, n, visible(i)); });
      } else {
        each_position([&](int i, int n) { add(i, n, {visible(i).first, common.first}); });
        add(row, count, common);
        each_position([&](int i, int n) { add(i, n, {common.last, visible(i).last}); });
      }
      row += count;
    }
  }

  template <class Right>
  void add_weighted(int row, int count, int block_start, KeyRange keys, Right values) {
    const long offset = static_cast<long>(keys.first) * values.stride;
    values.data += offset;
    values.ahead += offset;
    Tile::template multiply<true>(
        count, keys.last - keys.first, whole_vectors(),
        {scores_ + row * attention_chunk_tokens + block_start + keys.first, attention_chunk_tokens},
        values,
        {partial_.values + static_cast<long>(row) * call_.value_stride, call_.value_stride});
  }

  /// Dv rounded up to whole vectors.
  int whole_vectors() const { return round_up(call_.value_dim); }

  static int round_up(int n) { return (n + V::width - 1) / V::width * V::width; }

  AttentionPartial partial_at(float* memory) const {
    return {memory, memory + rows_, memory + 2 * rows_};
  }

  AttentionPartial partial_of(const AttentionTask& task, int chunk) const {
    return partial_at(task.partials + static_cast<long>(chunk - task.first_chunk) *
                                          partial_floats(rows_, call_.value_stride));
  }

  void clear_merged() {
    for (int row = 0; row < rows_; ++row) {
      merged_.maxima[row] = -__builtin_inff();
      merged_.sums[row] = 0.0F;
    }
    clear(merged_.values);
  }

  void clear(float* values) const {
    const int floats = rows_ * call_.value_stride;
    for (int i = 0; i < floats; i += V::width) {
      V::store(values + i, V::zero());
    }
  }

  void merge_partial(const AttentionPartial& partial) {
    const int columns = whole_vectors();
    for (int row = 0; row < rows_; ++row) {
      const float theirs = partial.maxima[row];
      if (theirs == -__builtin_inff()) {
        continue;
      }
      const float ours = merged_.maxima[row];
      const float maximum = theirs > ours ? theirs : ours;
      const auto old_scale = exp_nonpositive<V>(V::set(ours - maximum));
      const auto new_scale = exp_nonpositive<V>(V::set(theirs - maximum));
      float sums[V::width];
      V::store(sums, V::fma(V::set(partial.sums[row]), new_scale,
                            V::mul(V::set(merged_.sums[row]), old_scale)));
      merged_.maxima[row] = maximum;
      merged_.sums[row] = sums[0];
      const float* values = partial.values + static_cast<long>(row) * call_.value_stride;
      float* target = merged_.values + static_cast<long>(row) * call_.value_stride;
      for (int e = 0; e < columns; e += V::width) {
        V::store(target + e,
                 V::fma(V::load(values + e), new_scale, V::mul(V::load(target + e), old_scale)));
      }
    }
  }

  /// What a row's weighted values are multiplied by in the end.
  float final_factor(int row) const {
    const float sum = merged_.sums[row];
    if (call_.sinks == nullptr) {
      return 1.0F / sum;
    }
    const float sink = call_.sinks[head_of(row)];
    const float maximum = merged_.maxima[row];
    const float difference = sink > maximum ? maximum - sink : sink - maximum;
    float smaller[V::width];
    V::store(smaller, exp_nonpositive<V>(V::set(difference)));
    return sink > maximum ? smaller[0] / __builtin_fmaf(sum, smaller[0], 1.0F)
                          : 1.0F / (sum + smaller[0]);
  }

  void write_output() {
    with_element(call_.io_type, [&]<class Io>(const Io*) {
      const int d = call_.value_dim;
      const int columns = whole_vectors();
      for (int row = 0; row < rows_; ++row) {
        float* values = merged_.values + static_cast<long>(row) * call_.value_stride;
        const auto factor = V::set(final_factor(row));
        for (int e = 0; e < columns; e += V::width) {
          V::store(values + e, V::mul(V::load(values + e), factor));
        }
        const long out_row = span_.row + row / call_.group;
        store_row<V>(values, d,
                     static_cast<Io*>(call_.out) +
                         (out_row * call_.kv_heads * call_.group + head_of(row)) * d);
      }
    });
  }

  const AttentionCall& call_;
  const AttentionSpan& span_;
  int rows_;
  float* scores_;  // [rows, attention_chunk_tokens]
  float* block_;   // a KV block in f32: keys [D, kv_block_tokens] or values [tokens, stride]
  AttentionPartial partial_;
  AttentionPartial merged_;
};

template <class V>
constexpr AttentionCpu attention_kernels() {
  using Kernel = AttentionKernel<V>;
  return {Kernel::prepare, Kernel::attend, Kernel::merge};
}

}  // namespace espalier::kernels
