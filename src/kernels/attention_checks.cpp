#include "kernels/attention_checks.h"

#include <stdexcept>
#include <string>

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;

void require(bool holds, const char* what) {
  if (!holds) {
    throw std::invalid_argument(std::string("[attention] expected ") + what);
  }
}

bool plain_float(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

void check_norm(const std::optional<RmsNorm>& norm, int head_dim) {
  require(
      !norm || (norm->weight.dtype() == mx::float32 && norm->weight.shape() == mx::Shape{head_dim}),
      "q and k norm weights as f32 [D]");
}

void check_vector(const std::optional<mx::array>& vector, int size) {
  require(!vector || (vector->dtype() == mx::float32 && vector->shape() == mx::Shape{size}),
          "sinks and slopes as f32 [H], query factors as f32 [T]");
}

void check_batch(const AttentionBatch& batch, int rows, int blocks) {
  int covered = 0;
  for (const AttentionRows& sequence : batch) {
    require(sequence.rows >= 0 && sequence.position >= 0 && sequence.first_row >= 0 &&
                sequence.rows <= rows - sequence.first_row,
            "each sequence's rows within qkv");
    covered += sequence.rows;
    const int length = sequence.position + sequence.rows;
    const int needed = (length + kv_block_tokens - 1) / kv_block_tokens;
    require(static_cast<int>(sequence.block_table.size()) >= needed,
            "a block table that covers each sequence");
    for (int block : sequence.block_table) {
      require(block >= 0 && block < blocks, "block tables with blocks of the pool");
    }
  }
  require(covered == rows, "sequences that together cover the rows of qkv");
}

}  // namespace

void check_attention(const mx::array& qkv, const KvLayer& layer, const AttentionBatch& batch,
                     const AttentionOptions& options) {
  const int h = options.heads;
  const int hk = options.kv_heads;
  const int d = options.head_dim;
  require(hk >= 1 && h >= hk && h % hk == 0 && d >= 1, "heads that kv heads divide");
  const int dv = options.values_in_keys ? 0 : options.values();
  const int kv_columns = options.shared_kv ? 0 : hk * (d + dv);
  require(qkv.ndim() == 2 && qkv.shape(1) == h * d + kv_columns && plain_float(qkv.dtype()),
          "qkv as f32, f16 or bf16 [T, (H + Hk) D + Hk Dv]");
  require(!options.values_in_keys ||
              (hk == 1 && options.rope && options.rope->dims + options.values() <= d),
          "values within the keys of one kv head");
  const int blocks = layer.keys.ndim() == 4 ? layer.keys.shape(0) : 0;
  require(layer.keys.shape() == mx::Shape{blocks, hk, d, kv_block_tokens} &&
              layer.values.shape() == mx::Shape{blocks, hk, kv_block_tokens, dv},
          "keys [blocks, Hk, D, 32] and values [blocks, Hk, 32, Dv]");
  require(plain_float(layer.keys.dtype()) && layer.keys.dtype() == layer.values.dtype(),
          "keys and values of one type, f32, f16 or bf16");
  check_norm(options.q_norm, d);
  check_norm(options.k_norm, d);
  check_norm(options.v_norm, options.values());
  check_vector(options.sinks, h);
  check_vector(options.alibi_slopes, h);
  check_vector(options.query_factors, qkv.shape(0));
  if (options.rope) {
    const Rope& rope = *options.rope;
    require(rope.dims >= 0 && rope.dims % 2 == 0 && rope.dims <= d,
            "an even number of rotated elements, at most D");
    require(
        rope.inv_freq.dtype() == mx::float32 && rope.inv_freq.shape() == mx::Shape{rope.dims / 2},
        "inv_freq as f32 [dims / 2]");
  }
  check_batch(batch, qkv.shape(0), blocks);
}

}  // namespace espalier::kernels
