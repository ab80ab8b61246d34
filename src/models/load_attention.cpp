#include <optional>
#include <utility>
#include <vector>

#include "models/module_builder.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;

/// The rows of one part of a query, key and value matrix, for each head in turn.
struct HeadRows {
  std::vector<int> q;
  std::vector<int> k;
  std::vector<int> v;
  int total = 0;

  /// A matrix that holds each group's queries, keys and values below one another.
  static HeadRows grouped(const AttentionDescriptor& part, int value_dim) {
    HeadRows rows;
    const auto [stated, values_before_keys] = *part.grouped_qkv;
    const int groups = stated > 0 ? stated : part.kv_heads;
    const int kv_heads = part.kv_heads / groups;
    const auto take = [&rows](std::vector<int>& target, int count) {
      for (int i = 0; i < count; ++i) {
        target.push_back(rows.total++);
      }
    };
    for (int group = 0; group < groups; ++group) {
      take(rows.q, part.heads / groups * part.head_dim);
      if (values_before_keys) {
        take(rows.v, kv_heads * value_dim);
      }
      take(rows.k, kv_heads * part.head_dim);
      if (!values_before_keys) {
        take(rows.v, kv_heads * value_dim);
      }
    }
    return rows;
  }

  /// A query matrix that holds each head's query and gate below one another; the gate as `k`.
  static HeadRows gated_queries(const AttentionDescriptor& part) {
    HeadRows rows;
    for (int head = 0; head < part.heads; ++head) {
      for (int i = 0; i < part.head_dim; ++i) {
        rows.q.push_back(2 * head * part.head_dim + i);
        rows.k.push_back((2 * head + 1) * part.head_dim + i);
      }
    }
    rows.total = 2 * part.heads * part.head_dim;
    return rows;
  }
};

bool gate_in_query(const AttentionDescriptor& part) {
  return part.output_gate && part.output_gate->place == OutputGateDescriptor::Place::in_query;
}

layers::Linear load_qkv(ModuleBuilder& builder, const AttentionDescriptor& part,
                        const std::string& prefix, int value_dim) {
  const TensorNames& names = builder.names();
  const int width = builder.descriptor().width;
  const int q_size = part.heads * part.head_dim;
  const int k_size = part.kv_heads * part.head_dim;
  const int v_size = part.kv_heads * value_dim;
  if (part.shares_kv_of) {
    return builder.linear(prefix, {names.qkv[0]}, {q_size}, width, part.qkv_bias);
  }
  if (part.keys_are_values) {
    return builder.linear(prefix, {names.qkv[0], names.qkv[1], names.qkv[1]},
                          {q_size, k_size, v_size}, width, part.qkv_bias);
  }
  if (part.grouped_qkv) {
    const HeadRows rows = HeadRows::grouped(part, value_dim);
    return builder.linear_rows(prefix + names.qkv[0], {rows.q, rows.k, rows.v}, rows.total, width,
                               part.qkv_bias);
  }
  if (gate_in_query(part)) {
    const HeadRows rows = HeadRows::gated_queries(part);
    return builder.join_linear(
        builder.linear_rows(prefix + names.qkv[0], {rows.q}, rows.total, width, part.qkv_bias),
        builder.linear(prefix, {names.qkv[1], names.qkv[2]}, {k_size, v_size}, width,
                       part.qkv_bias));
  }
  return builder.linear(prefix, names.qkv, {q_size, k_size, v_size}, width, part.qkv_bias);
}

std::optional<layers::Linear> load_gate(ModuleBuilder& builder, const AttentionDescriptor& part,
                                        const std::string& prefix, int outputs) {
  if (!part.output_gate) {
    return std::nullopt;
  }
  const TensorNames& names = builder.names();
  const int width = builder.descriptor().width;
  if (gate_in_query(part)) {
    const HeadRows rows = HeadRows::gated_queries(part);
    return builder.linear_rows(prefix + names.qkv[0], {rows.k}, rows.total, width, part.qkv_bias);
  }
  return builder.linear(prefix, {names.output_gate}, {outputs}, width, false);
}

kernels::AttentionOptions make_options(ModuleBuilder& builder, const AttentionDescriptor& part,
                                       int value_dim) {
  kernels::AttentionOptions options{.heads = part.heads,
                                    .kv_heads = part.kv_heads,
                                    .head_dim = part.head_dim,
                                    .scale = part.scale,
                                    .value_dim = value_dim,
                                    .window = part.window,
                                    .chunk = part.chunk,
                                    .softcap = part.softcap,
                                    .norm_after_rope = part.qk_norm && part.qk_norm->after_rope,
                                    .shared_kv = part.shares_kv_of.has_value()};
  if (part.rope) {
    options.rope = builder.rope(*part.rope);
  }
  if (!part.alibi_slopes.empty()) {
    options.alibi_slopes = layers::to_array(part.alibi_slopes);
  }
  return options;
}

/// The norm of q or of k where it is not the kernel's.
layers::ProjectionNorm load_projection_norm(ModuleBuilder& builder, const QkNormDescriptor& part,
                                            const std::string& name, int heads, int head_dim) {
  const int size = heads * head_dim;
  if (part.scope == QkNormDescriptor::Scope::projection) {
    return {.norm = builder.norm(part.norm, name, size), .columns = size};
  }
  if (part.weights == QkNormDescriptor::Weights::shared) {
    return {.norm = builder.norm(part.norm, name, head_dim), .columns = head_dim};
  }
  std::vector<float> weight;
  if (part.weights == QkNormDescriptor::Weights::stacked) {
    weight = builder.weights().flat(name + ".weight", size);
  }
  for (int head = 0; part.weights == QkNormDescriptor::Weights::listed && head < heads; ++head) {
    const std::vector<float> own =
        builder.weights().vector(name + ".norms." + std::to_string(head) + ".weight", head_dim);
    weight.insert(weight.end(), own.begin(), own.end());
  }
  NormDescriptor plain = part.norm;
  plain.weight = false;
  return {.norm = builder.norm(plain, {}, head_dim),
          .columns = head_dim,
          .weight = layers::to_array(weight)};
}

/// Whether the attention kernel normalizes q and k itself.
bool kernel_normalizes(const QkNormDescriptor& part) {
  return part.scope == QkNormDescriptor::Scope::head &&
         part.norm.kind == NormDescriptor::Kind::rms &&
         part.weights == QkNormDescriptor::Weights::shared;
}

layers::Linear scale_bias(const ModuleBuilder& builder, layers::Linear linear, float scale) {
  if (scale == 1.0F || !linear.bias()) {
    return linear;
  }
  mx::array bias = *linear.bias() * mx::array(scale);
  bias.eval();
  return layers::Linear(linear.weights(), std::move(bias), builder.activations());
}

void load_norms(ModuleBuilder& builder, const AttentionDescriptor& part, const std::string& prefix,
                layers::Attention& module) {
  const TensorNames& names = builder.names();
  if (part.qk_norm && kernel_normalizes(*part.qk_norm)) {
    const NormDescriptor& norm = part.qk_norm->norm;
    module.options.q_norm = *builder.norm(norm, prefix + names.q_norm, part.head_dim).rms();
    if (!part.shares_kv_of) {
      module.options.k_norm = *builder.norm(norm, prefix + names.k_norm, part.head_dim).rms();
    }
  } else if (part.qk_norm) {
    module.projection_norms = layers::ProjectionNorms{
        .q_norm = load_projection_norm(builder, *part.qk_norm, prefix + names.q_norm, part.heads,
                                       part.head_dim),
        .k_norm = load_projection_norm(builder, *part.qk_norm, prefix + names.k_norm, part.kv_heads,
                                       part.head_dim)};
  }
  if (part.value_norm && !part.shares_kv_of) {
    module.options.v_norm = *builder.norm(*part.value_norm, {}, module.options.values()).rms();
  }
  if (part.output_norm) {
    module.output_norm = builder.norm(*part.output_norm, prefix + names.output_norm,
                                      part.heads * module.options.values());
  }
}

}  // namespace

layers::Attention load_attention(ModuleBuilder& builder, const AttentionDescriptor& part,
                                 const std::string& prefix) {
  const TensorNames& names = builder.names();
  const int width = builder.descriptor().width;
  const int value_dim = part.value_dim > 0 ? part.value_dim : part.head_dim;
  const int attended = part.heads * value_dim;
  layers::Attention module{
      .qkv_proj = scale_bias(builder, load_qkv(builder, part, prefix, value_dim), part.bias_scale),
      .o_proj = scale_bias(
          builder,
          builder.linear(prefix, {names.attention_output}, {width}, attended, part.output_bias),
          part.bias_scale),
      .options = make_options(builder, part, value_dim),
      .qkv_limit = part.qkv_limit,
      .value_scale = part.value_scale,
      .gate_proj = load_gate(builder, part, prefix, attended)};
  load_norms(builder, part, prefix, module);
  if (part.sinks) {
    module.options.sinks =
        layers::to_array(builder.weights().flat(prefix + names.sinks, part.heads));
  }
  if (part.query_growth) {
    module.query_growth = layers::QueryGrowth{.beta = part.query_growth->beta,
                                              .interval = part.query_growth->interval,
                                              .offset = part.query_growth->offset};
  }
  return module;
}

}  // namespace espalier::models
