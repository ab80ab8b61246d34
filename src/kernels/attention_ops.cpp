#include <algorithm>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_checks.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;

mx::array normalize(const mx::array& x, const std::optional<RmsNorm>& norm) {
  return norm ? mx::fast::rms_norm(x, norm->weight, norm->eps) : x;
}

/// x [heads, rows, D] rotated by the positions from `position` on.
mx::array rotate(const mx::array& x, int position, const std::optional<Rope>& rope) {
  if (!rope || rope->dims == 0) {
    return x;
  }
  const int heads = x.shape(0);
  const int rows = x.shape(1);
  const int d = x.shape(2);
  const int half = rope->dims / 2;
  const auto cpu = mx::Device::cpu;
  const auto positions = mx::arange(position, position + rows, mx::float64, cpu);
  // Reduced to one turn in f64, since the cosine itself may be taken in f32.
  const auto angles = mx::remainder(mx::multiply(mx::reshape(positions, {rows, 1}, cpu),
                                                 mx::astype(rope->inv_freq, mx::float64, cpu), cpu),
                                    mx::array(2.0 * std::numbers::pi, mx::float64), cpu);
  const auto magnitude = mx::array(rope->magnitude);
  const auto cosine = mx::multiply(mx::astype(mx::cos(angles, cpu), mx::float32, cpu), magnitude);
  const auto sine = mx::multiply(mx::astype(mx::sin(angles, cpu), mx::float32, cpu), magnitude);
  const auto rotated = mx::slice(x, {0, 0, 0}, {heads, rows, rope->dims});
  const int pair_axis = rope->interleaved ? 3 : 2;
  const auto pairs = mx::reshape(rotated, rope->interleaved ? mx::Shape{heads, rows, half, 2}
                                                            : mx::Shape{heads, rows, 2, half});
  const auto first = mx::take(pairs, 0, pair_axis);
  const auto second = mx::take(pairs, 1, pair_axis);
  const auto turned =
      mx::stack({mx::subtract(mx::multiply(first, cosine), mx::multiply(second, sine)),
                 mx::add(mx::multiply(first, sine), mx::multiply(second, cosine))},
                pair_axis);
  return mx::concatenate({mx::reshape(turned, {heads, rows, rope->dims}),
                          mx::slice(x, {0, 0, rope->dims}, {heads, rows, d})},
                         2);
}

/// Writes rows [heads, rows, D] of a sequence into the pool, KV block by KV block.
mx::array write_rows(mx::array pool, const mx::array& rows, const AttentionRows& sequence,
                     bool transposed) {
  const int heads = rows.shape(0);
  const int d = rows.shape(2);
  for (int row = 0; row < sequence.rows;) {
    const int position = sequence.position + row;
    const int block = sequence.block_table[position / kv_block_tokens];
    const int slot = position % kv_block_tokens;
    const int end = std::min(sequence.rows, row + kv_block_tokens - slot);
    const int last = slot + end - row;
    auto piece = mx::expand_dims(mx::slice(rows, {0, row, 0}, {heads, end, d}), 0);
    piece = mx::astype(transposed ? mx::swapaxes(piece, 2, 3) : piece, pool.dtype());
    const mx::Shape start =
        transposed ? mx::Shape{block, 0, 0, slot} : mx::Shape{block, 0, slot, 0};
    const mx::Shape stop =
        transposed ? mx::Shape{block + 1, heads, d, last} : mx::Shape{block + 1, heads, last, d};
    pool = mx::slice_update(pool, piece, start, stop);
    row = end;
  }
  return pool;
}

/// The first `length` keys or values of a sequence: [Hk, length, D] in f32.
mx::array read_rows(const mx::array& pool, const AttentionRows& sequence, int length,
                    bool transposed) {
  const int blocks = (length + kv_block_tokens - 1) / kv_block_tokens;
  const mx::array table(sequence.block_table.data(), {blocks}, mx::int32);
  auto rows = mx::astype(mx::take(pool, table, 0), mx::float32);
  rows =
      mx::transpose(rows, transposed ? std::vector<int>{1, 0, 3, 2} : std::vector<int>{1, 0, 2, 3});
  rows = mx::reshape(rows, {rows.shape(0), blocks * kv_block_tokens, rows.shape(3)});
  return mx::slice(rows, {0, 0, 0}, {rows.shape(0), length, rows.shape(2)});
}

/// Which keys each row sees: [rows, length].
mx::array visible_keys(const AttentionRows& sequence, const AttentionOptions& options) {
  const int length = sequence.position + sequence.rows;
  const auto queries =
      mx::reshape(mx::arange(sequence.position, length, mx::int32), {sequence.rows, 1});
  const auto keys = mx::arange(length, mx::int32);
  auto visible = mx::less_equal(keys, queries);
  if (options.window > 0) {
    visible = mx::logical_and(visible,
                              mx::greater(keys, mx::subtract(queries, mx::array(options.window))));
  }
  if (options.chunk > 0) {
    const mx::array size(options.chunk);
    visible = mx::logical_and(
        visible, mx::equal(mx::floor_divide(keys, size), mx::floor_divide(queries, size)));
  }
  return visible;
}

mx::array attend(const mx::array& queries, const mx::array& keys, const mx::array& values,
                 const AttentionRows& sequence, const AttentionOptions& options) {
  const int group = options.heads / options.kv_heads;
  const int length = keys.shape(1);
  const int d = options.head_dim;
  // [Hk, group, rows, D] against [Hk, 1, length, D]
  const auto q = mx::reshape(queries, {options.kv_heads, group, sequence.rows, d});
  const auto k = mx::reshape(keys, {options.kv_heads, 1, length, d});
  const auto v = mx::reshape(values, {options.kv_heads, 1, length, options.values()});
  auto scores = mx::multiply(mx::matmul(q, mx::swapaxes(k, 2, 3)), mx::array(options.scale));
  if (options.softcap > 0.0F) {
    const mx::array cap(options.softcap);
    scores = mx::multiply(mx::tanh(mx::divide(scores, cap)), cap);
  }
  const mx::Shape per_head = {options.kv_heads, group, 1, 1};
  if (options.alibi_slopes) {
    const auto positions =
        mx::arange(sequence.position, sequence.position + sequence.rows, mx::float32);
    const auto distance =
        mx::subtract(mx::arange(length, mx::float32), mx::reshape(positions, {sequence.rows, 1}));
    scores = mx::add(scores, mx::multiply(mx::reshape(*options.alibi_slopes, per_head), distance));
  }
  const mx::array hidden(-std::numeric_limits<float>::infinity());
  scores = mx::where(visible_keys(sequence, options), scores, hidden);
  if (options.sinks) {
    const auto sinks = mx::broadcast_to(mx::reshape(*options.sinks, per_head),
                                        {options.kv_heads, group, sequence.rows, 1});
    scores = mx::softmax(mx::concatenate({scores, sinks}, -1), -1);
    scores = mx::slice(scores, {0, 0, 0, 0}, {options.kv_heads, group, sequence.rows, length});
  } else {
    scores = mx::softmax(scores, -1);
  }
  const auto mixed = mx::matmul(scores, v);
  // [H, rows, Dv] -> [rows, H Dv]
  const int dv = options.values();
  return mx::reshape(mx::swapaxes(mx::reshape(mixed, {options.heads, sequence.rows, dv}), 0, 1),
                     {sequence.rows, options.heads * dv});
}

}  // namespace

mx::array attention_ops(const mx::array& qkv, KvLayer& layer,
                        const std::shared_ptr<const AttentionBatch>& batch,
                        const AttentionOptions& options) {
  check_attention(qkv, layer, *batch, options);
  const int d = options.head_dim;
  const int dv = options.values();
  auto out = mx::zeros({qkv.shape(0), options.heads * dv}, mx::float32);
  for (const AttentionRows& sequence : *batch) {
    const int first = sequence.first_row;
    const int end = first + sequence.rows;
    const auto rows = mx::astype(mx::slice(qkv, {first, 0}, {end, qkv.shape(1)}), mx::float32);
    const auto heads = [&](int column, int count, int size) {
      const auto columns = mx::slice(rows, {0, column}, {sequence.rows, column + count * size});
      return mx::swapaxes(mx::reshape(columns, {sequence.rows, count, size}), 0, 1);
    };
    const auto turn = [&](const mx::array& x, const std::optional<RmsNorm>& norm) {
      return options.norm_after_rope ? normalize(rotate(x, sequence.position, options.rope), norm)
                                     : rotate(normalize(x, norm), sequence.position, options.rope);
    };
    auto q = turn(heads(0, options.heads, d), options.q_norm);
    if (options.query_factors) {
      q = mx::multiply(
          q, mx::reshape(mx::slice(*options.query_factors, {first}, {end}), {sequence.rows, 1}));
    }
    if (!options.shared_kv) {
      const auto k = turn(heads(options.heads * d, options.kv_heads, d), options.k_norm);
      layer.keys = write_rows(std::move(layer.keys), k, sequence, true);
    }
    const int length = sequence.position + sequence.rows;
    const auto keys = read_rows(layer.keys, sequence, length, true);
    auto values = keys;
    if (options.shared_kv && !options.values_in_keys) {
      values = read_rows(layer.values, sequence, length, false);
    } else if (options.values_in_keys) {
      values = mx::slice(keys, {0, 0, options.rope->dims}, {1, length, options.rope->dims + dv});
    } else {
      const auto v = normalize(heads((options.heads + options.kv_heads) * d, options.kv_heads, dv),
                               options.v_norm);
      layer.values = write_rows(std::move(layer.values), v, sequence, false);
      values = read_rows(layer.values, sequence, length, false);
    }
    const auto mixed = attend(q, keys, values, sequence, options);
    out = mx::slice_update(out, mixed, mx::Shape{first, 0}, mx::Shape{end, options.heads * dv});
  }
  return mx::astype(out, qkv.dtype());
}

}  // namespace espalier::kernels
