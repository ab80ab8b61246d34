#include "layers/attention.h"

#include <cmath>
#include <vector>

#include "kernels/elementwise.h"

namespace espalier::layers {
namespace {

namespace mx = mlx::core;

/// `qkv` [T, (H + 2 Hk) D] with its q and k parts normalized.
mx::array normalize_projections(const mx::array& qkv, const ProjectionNorms& norms,
                                const kernels::AttentionOptions& options) {
  const int q_end = options.heads * options.head_dim;
  const int k_end = q_end + options.kv_heads * options.head_dim;
  const std::vector<mx::array> parts = mx::split(qkv, mx::Shape{q_end, k_end}, -1);
  return mx::concatenate(
      {norms.q_norm(mx::contiguous(parts[0])), norms.k_norm(mx::contiguous(parts[1])), parts[2]},
      -1);
}

/// The factor on each row's queries, f32 [T].
mx::array query_factors(const AttentionBatch& batch, int rows, const QueryGrowth& growth) {
  std::vector<float> factors(static_cast<std::size_t>(rows));
  for (const kernels::AttentionRows& sequence : batch) {
    for (int row = 0; row < sequence.rows; ++row) {
      const auto position = static_cast<float>(sequence.position + row);
      factors[sequence.first_row + row] =
          1 + growth.beta * std::log1p(std::floor((position + growth.offset) / growth.interval));
    }
  }
  return mx::array(factors.begin(), {rows}, mx::float32);
}

}  // namespace

mx::array ProjectionNorm::operator()(const mx::array& x) const {
  const mx::array normed =
      columns == x.shape(1) ? norm(x) : mx::reshape(norm(mx::reshape(x, {-1, columns})), x.shape());
  return weight ? normed * mx::astype(*weight, x.dtype()) : normed;
}

mx::array Attention::attend(const mx::array& x, const Norm* norm, kernels::KvLayer& kv,
                            const std::shared_ptr<const AttentionBatch>& batch) const {
  mx::array qkv = qkv_proj(x, {.norm = norm});
  if (projection_norms) {
    qkv = normalize_projections(qkv, *projection_norms, options);
  }
  if (qkv_limit != 0.0F) {
    qkv = mx::clip(qkv, mx::array(-qkv_limit, qkv.dtype()), mx::array(qkv_limit, qkv.dtype()));
  }
  mx::array y(0.0F);
  if (query_growth) {
    kernels::AttentionOptions grown = options;
    grown.query_factors = query_factors(*batch, x.shape(0), *query_growth);
    y = kernels::attention(qkv, kv, batch, grown);
  } else {
    y = kernels::attention(qkv, kv, batch, options);
  }
  if (value_scale != 1.0F) {
    y = y * mx::array(value_scale, y.dtype());
  }
  if (gate_proj) {
    y = kernels::elementwise((*gate_proj)(x, {.norm = norm}),
                             {.kind = kernels::ElementFunction::Kind::sigmoid}, y);
  }
  return output_norm ? (*output_norm)(y) : y;
}

std::size_t Attention::bytes() const {
  return qkv_proj.bytes() + o_proj.bytes() + (gate_proj ? gate_proj->bytes() : 0);
}

}  // namespace espalier::layers
