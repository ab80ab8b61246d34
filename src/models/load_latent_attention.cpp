#include <optional>
#include <utility>
#include <vector>

#include "models/module_builder.h"

namespace espalier::models {

layers::LatentAttention load_latent_attention(ModuleBuilder& builder,
                                              const LatentAttentionDescriptor& part,
                                              const std::string& prefix) {
  const LatentNames& names = builder.names().latent;
  const int width = builder.descriptor().width;
  const int q_size = part.heads * (part.nope_dim + part.rope_dim);
  std::optional<layers::LatentAttention::QueryDown> q_down;
  if (part.query_rank > 0) {
    q_down = layers::LatentAttention::QueryDown{
        .proj = builder.linear(prefix, {names.q_a}, {part.query_rank}, width, part.bias),
        .norm = builder.norm(part.norm, prefix + names.q_a_norm, part.query_rank)};
  }
  layers::Linear q_proj =
      q_down ? builder.linear(prefix, {names.q_b}, {q_size}, part.query_rank, false)
             : builder.linear(prefix, {names.q}, {q_size}, width, false);
  std::vector<kernels::PackedMatrix> key_up;
  std::vector<kernels::PackedMatrix> value_up;
  const int head_rows = part.nope_dim + part.value_dim;
  const bool parted =
      !names.k_b.empty() && builder.weights().contains(prefix + names.k_b + ".weight");
  for (int head = 0; head < part.heads; ++head) {
    if (parted) {
      const auto of_head = [&](const std::string& name, int rows, int columns) {
        return builder.weights().matrix_part(prefix + name + ".weight",
                                             {.rows = layers::number_range(0, rows),
                                              .total_rows = rows,
                                              .columns = columns,
                                              .index = head,
                                              .count = part.heads});
      };
      key_up.push_back(of_head(names.k_b, part.kv_rank, part.nope_dim));
      value_up.push_back(of_head(names.v_b, part.value_dim, part.kv_rank));
      continue;
    }
    const auto rows = [&](int first, int count) {
      return builder.weights().matrix_part(
          prefix + names.kv_b + ".weight",
          {.rows = layers::number_range(head * head_rows + first, count),
           .total_rows = part.heads * head_rows,
           .columns = part.kv_rank,
           .plain_rows = true});
    };
    key_up.push_back(layers::transpose(rows(0, part.nope_dim)));
    value_up.push_back(rows(part.nope_dim, part.value_dim));
  }
  return {.q_down = std::move(q_down),
          .q_proj = std::move(q_proj),
          .kv_down = builder.linear(prefix, {names.kv_a}, {part.kv_rank + part.rope_dim}, width,
                                    part.bias),
          .kv_norm = builder.norm(part.norm, prefix + names.kv_a_norm, part.kv_rank),
          .key_up = std::move(key_up),
          .value_up = std::move(value_up),
          .o_proj = builder.linear(prefix, {builder.names().attention_output}, {width},
                                   part.heads * part.value_dim, part.bias),
          .options = {.heads = part.heads,
                      .kv_heads = 1,
                      .head_dim = part.rope_dim + part.kv_rank,
                      .scale = part.scale,
                      .value_dim = part.kv_rank,
                      .rope = builder.rope(part.rope),
                      .values_in_keys = true}};
}

}  // namespace espalier::models
