#include "kernels/bidirectional_attention.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "kernels/norm.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;

void check(const mx::array& qkv, const AttentionBatch& batch,
           const BidirectionalAttentionOptions& options) {
  const int columns = (options.heads + 2 * options.kv_heads) * options.head_dim;
  if (qkv.ndim() != 2 || options.kv_heads < 1 || options.heads % options.kv_heads != 0 ||
      qkv.shape(1) != columns) {
    throw std::invalid_argument("[bidirectional_attention] expected qkv [T, (H + 2 Hk) D]");
  }
  for (const AttentionRows& sequence : batch) {
    if (sequence.position != 0 || sequence.first_row < 0 || sequence.rows < 0 ||
        sequence.first_row + sequence.rows > qkv.shape(0)) {
      throw std::invalid_argument("[bidirectional_attention] expected whole sequences in the rows");
    }
  }
}

/// x [rows, heads, D] with each head normalized.
mx::array normalize_heads(const mx::array& x, const std::optional<RmsNorm>& norm) {
  if (!norm) {
    return x;
  }
  const mx::array heads = mx::reshape(x, {x.shape(0) * x.shape(1), x.shape(2)});
  return mx::reshape(rms_norm(heads, *norm), x.shape());
}

/// Cosines or sines of the angles [rows, 1, dims/2].
mx::array angles(int rows, const Rope& rope, double (*function)(double)) {
  mx::array frequencies = rope.inv_freq;
  frequencies.eval();
  std::vector<float> values;
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < rope.dims / 2; ++i) {
      const double angle = static_cast<double>(row) * frequencies.data<float>()[i];
      values.push_back(static_cast<float>(function(angle)) * rope.magnitude);
    }
  }
  return mx::array(values.begin(), {rows, 1, rope.dims / 2}, mx::float32);
}

/// x [rows, heads, D] rotated by its rows' positions.
mx::array rotate(const mx::array& x, const std::optional<Rope>& rope) {
  if (!rope || rope->dims == 0) {
    return x;
  }
  const int rows = x.shape(0);
  const int heads = x.shape(1);
  const int half = rope->dims / 2;
  const mx::array cosine = angles(rows, *rope, [](double angle) { return std::cos(angle); });
  const mx::array sine = angles(rows, *rope, [](double angle) { return std::sin(angle); });
  const int axis = rope->interleaved ? 3 : 2;
  const mx::array pairs = mx::reshape(
      mx::slice(x, {0, 0, 0}, {rows, heads, rope->dims}),
      rope->interleaved ? mx::Shape{rows, heads, half, 2} : mx::Shape{rows, heads, 2, half});
  const mx::array first = mx::take(pairs, 0, axis);
  const mx::array second = mx::take(pairs, 1, axis);
  const mx::array turned =
      mx::stack({first * cosine - second * sine, first * sine + second * cosine}, axis);
  return mx::concatenate(
      {mx::reshape(turned, {rows, heads, rope->dims}), mx::slice(x, {0, 0, rope->dims}, x.shape())},
      2);
}

/// 0 where a row sees another, minus infinity elsewhere: [rows, rows].
mx::array mask(int rows, int reach) {
  const mx::array positions = mx::arange(rows);
  const mx::array distance =
      mx::abs(mx::reshape(positions, {rows, 1}) - mx::reshape(positions, {1, rows}));
  return mx::where(mx::less_equal(distance, mx::array(reach)), mx::array(0.0F),
                   mx::array(-std::numeric_limits<float>::infinity()));
}

/// One sequence: rows of qkv in f32 to [rows, H D].
mx::array attend(const mx::array& qkv, const BidirectionalAttentionOptions& options) {
  const int rows = qkv.shape(0);
  const int d = options.head_dim;
  const auto heads = [&](int first, int count) {
    return mx::reshape(mx::contiguous(mx::slice(qkv, {0, first * d}, {rows, (first + count) * d})),
                       {rows, count, d});
  };
  const int group = options.heads / options.kv_heads;
  const mx::array q =
      rotate(normalize_heads(heads(0, options.heads), options.q_norm), options.rope);
  const mx::array k =
      rotate(normalize_heads(heads(options.heads, options.kv_heads), options.k_norm), options.rope);
  const mx::array v = heads(options.heads + options.kv_heads, options.kv_heads);
  // [Hk, group, rows, D] against [Hk, 1, rows, D]
  const mx::array queries = mx::reshape(mx::swapaxes(q, 0, 1), {options.kv_heads, group, rows, d});
  const mx::array keys = mx::expand_dims(mx::swapaxes(k, 0, 1), 1);
  const mx::array values = mx::expand_dims(mx::swapaxes(v, 0, 1), 1);
  mx::array scores = mx::matmul(queries, mx::swapaxes(keys, 2, 3)) * mx::array(options.scale);
  if (options.reach > 0) {
    scores = scores + mask(rows, options.reach);
  }
  const mx::array mixed = mx::matmul(mx::softmax(scores, -1, true), values);
  return mx::reshape(mx::swapaxes(mx::reshape(mixed, {options.heads, rows, d}), 0, 1),
                     {rows, options.heads * d});
}

}  // namespace

mx::array bidirectional_attention(const mx::array& qkv, const AttentionBatch& batch,
                                  const BidirectionalAttentionOptions& options) {
  check(qkv, batch, options);
  mx::array out = mx::zeros({qkv.shape(0), options.heads * options.head_dim}, qkv.dtype());
  for (const AttentionRows& sequence : batch) {
    if (sequence.rows == 0) {
      continue;
    }
    const int end = sequence.first_row + sequence.rows;
    const mx::array rows =
        mx::astype(mx::slice(qkv, {sequence.first_row, 0}, {end, qkv.shape(1)}), mx::float32);
    out = mx::slice_update(out, mx::astype(attend(rows, options), qkv.dtype()),
                           mx::Shape{sequence.first_row, 0}, mx::Shape{end, out.shape(1)});
  }
  return out;
}

}  // namespace espalier::kernels
