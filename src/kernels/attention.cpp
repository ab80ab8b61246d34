#include "kernels/attention.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "kernels/attention_checks.h"
#include "kernels/attention_cpu.h"
#include "kernels/element_type.h"
#include "kernels/in_place.h"
#include "kernels/primitive.h"
#include "kernels/rope_table.h"

namespace espalier::kernels {
namespace {

namespace mx = mlx::core;

/// Tasks per worker below which the rows of one tile are split over the keys as well.
constexpr int tasks_per_worker = 6;

/// Multiplications below which waking the workers and meeting them costs more than it brings.
constexpr std::int64_t serial_score_products = 1 << 17;

int first_chunk(const AttentionSpan& span, const AttentionCall& call) {
  int first = 0;
  if (call.window > 0) {
    first = std::max(first, span.position - call.window + 1);
  }
  if (call.chunk > 0) {
    first = std::max(first, span.position / call.chunk * call.chunk);
  }
  return first / attention_chunk_tokens;
}

int end_chunk(const AttentionSpan& span) {
  return (span.position + span.count - 1) / attention_chunk_tokens + 1;
}

/// What the workers have to do for one node.
struct Plan {
  std::vector<AttentionSpan> prepare;
  std::vector<AttentionTask> attend;
  std::vector<AttentionTask> merge;
  std::unique_ptr<float[]> partials;
};

/// Cuts a sequence's rows where `first + i * step` is a multiple of `step` and calls `use` with
/// each piece at each kv head.
template <class Use>
void cut(const AttentionRows& sequence, int kv_heads, int step, int alignment, const Use& use) {
  for (int row = 0; row < sequence.rows;) {
    const int room = step - (alignment + row) % step;
    const int count = std::min(room, sequence.rows - row);
    for (int head = 0; head < kv_heads; ++head) {
      use(AttentionSpan{sequence.block_table.data(), head, sequence.first_row + row,
                        sequence.position + row, count});
    }
    row += count;
  }
}

/// Splits tasks over their chunks, whose partial results are merged afterwards.
void split_over_keys(Plan& plan, const AttentionCall& call, int wanted_tasks) {
  const std::vector<AttentionTask> whole = std::move(plan.attend);
  plan.attend.clear();
  int chunks = 0;
  std::size_t floats = 0;
  const auto floats_per_chunk = [&](const AttentionTask& task) {
    return static_cast<std::size_t>(
        partial_floats(task.span.count * call.group, call.value_stride));
  };
  for (const AttentionTask& task : whole) {
    chunks += task.last_chunk - task.first_chunk;
    floats += floats_per_chunk(task) * (task.last_chunk - task.first_chunk);
  }
  const int step = std::max(1, chunks / wanted_tasks);
  plan.partials = std::make_unique_for_overwrite<float[]>(floats);
  float* partials = plan.partials.get();
  for (const AttentionTask& task : whole) {
    if (task.last_chunk - task.first_chunk <= step) {
      plan.attend.push_back(task);
      continue;
    }
    plan.merge.push_back({task.span, task.first_chunk, task.last_chunk, partials});
    for (int chunk = task.first_chunk; chunk < task.last_chunk; chunk += step) {
      const int end = std::min(chunk + step, task.last_chunk);
      plan.attend.push_back({task.span, chunk, end, partials});
      partials += floats_per_chunk(task) * (end - chunk);
    }
  }
}

Plan make_plan(const AttentionBatch& batch, const AttentionCall& call, int workers) {
  Plan plan;
  for (const AttentionRows& sequence : batch) {
    cut(sequence, call.kv_heads, kv_block_tokens, sequence.position,
        [&](const AttentionSpan& span) { plan.prepare.push_back(span); });
    cut(sequence, call.kv_heads, attention_tile_positions(call.group), 0,
        [&](const AttentionSpan& span) {
          plan.attend.push_back({span, first_chunk(span, call), end_chunk(span), nullptr});
        });
  }
  const int enough_tasks = tasks_per_worker * workers;
  if (workers > 1 && static_cast<int>(plan.attend.size()) < enough_tasks) {
    split_over_keys(plan, call, enough_tasks);
  }
  // The longest tasks first, so that no worker is left with one at the end.
  std::stable_sort(plan.attend.begin(), plan.attend.end(),
                   [](const AttentionTask& a, const AttentionTask& b) {
                     return a.last_chunk - a.first_chunk > b.last_chunk - b.first_chunk;
                   });
  return plan;
}

/// How many threads are worth their waking.
int count_workers(const AttentionBatch& batch, const AttentionCall& call, int available) {
  std::int64_t scores = 0;
  for (const AttentionRows& sequence : batch) {
    const int end = sequence.position + sequence.rows;
    const int keys = call.window > 0 ? std::min(end, call.window + sequence.rows) : end;
    scores += std::int64_t{sequence.rows} * keys;
  }
  const int heads = call.kv_heads * call.group;
  return scores * heads * (call.head_dim + call.value_dim) < serial_score_products ? 1 : available;
}

void run_plan(const Plan& plan, const AttentionCall& call, int workers) {
  const AttentionCpu& cpu = attention_cpu();
  const std::size_t scratch_floats =
      attention_scratch_floats(call.group, call.stride, call.value_stride);
  const auto scratch = std::make_unique_for_overwrite<float[]>(scratch_floats * workers);
  if (workers == 1) {
    for (const AttentionSpan& span : plan.prepare) {
      cpu.prepare(call, span, scratch.get());
    }
    for (const AttentionTask& task : plan.attend) {
      cpu.attend(call, task, scratch.get());
    }
    return;
  }
  base::ThreadPool& pool = base::compute_pool();
  base::TileCounter prepare(plan.prepare.size());
  base::TileCounter attend(plan.attend.size());
  base::TileCounter merge(plan.merge.size());
  pool.run([&](int worker) {
    float* mine = scratch.get() + scratch_floats * worker;
    for (std::size_t i; prepare.next(i);) {
      cpu.prepare(call, plan.prepare[i], mine);
    }
    pool.barrier();
    for (std::size_t i; attend.next(i);) {
      cpu.attend(call, plan.attend[i], mine);
    }
    if (plan.merge.empty()) {
      return;
    }
    pool.barrier();
    for (std::size_t i; merge.next(i);) {
      cpu.merge(call, plan.merge[i], mine);
    }
  });
}

/// The attention node. Inputs: qkv, keys, values, then those of q, k and v norm weight, rope table,
/// sinks, slopes and query factors that the options ask for; outputs: the result, keys, values.
struct Attention {
  static constexpr const char* name = "Attention";

  std::shared_ptr<const AttentionBatch> batch;
  int heads;
  int kv_heads;
  int head_dim;
  int value_dim;
  float scale;
  int window;
  int chunk;
  float softcap;
  std::optional<float> q_eps;
  std::optional<float> k_eps;
  std::optional<float> v_eps;
  int rope_dims;  // 0: none
  bool rope_interleaved;
  bool norm_after_rope;
  bool has_sinks;
  bool has_slopes;
  bool has_query_factors;
  bool values_in_keys;
  bool shared_kv;

  void allocate(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    outputs[0].set_data(mx::allocator::malloc(outputs[0].nbytes()));
    for (int i : {1, 2}) {
      take_over(inputs[i], outputs[i]);
    }
  }

  void operator()(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
    if (inputs[0].size() == 0) {
      return;
    }
    std::vector<mx::array> rows;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      rows.push_back(i == 1 || i == 2 ? inputs[i] : row_contiguous(inputs[i]));
    }
    AttentionCall call = make_call(rows, outputs);
    const auto queries = std::make_unique_for_overwrite<float[]>(
        static_cast<std::size_t>(call.rows) * heads * call.stride);
    call.queries = queries.get();
    const int workers = count_workers(*batch, call, base::compute_pool().size());
    run_plan(make_plan(*batch, call, workers), call, workers);
  }

 private:
  AttentionCall make_call(const std::vector<mx::array>& inputs,
                          std::vector<mx::array>& outputs) const {
    std::size_t next = 3;
    const auto optional_input = [&](bool present) {
      return present ? inputs[next++].data<float>() : nullptr;
    };
    AttentionCall call{};
    call.rows = inputs[0].shape(0);
    call.kv_heads = kv_heads;
    call.group = heads / kv_heads;
    call.head_dim = head_dim;
    call.stride = (head_dim + 15) / 16 * 16;
    call.value_dim = value_dim;
    call.value_stride = (value_dim + 15) / 16 * 16;
    call.value_offset = values_in_keys ? rope_dims : -1;
    call.chunk = chunk;
    call.scale = scale;
    call.window = window;
    call.softcap = softcap;
    call.io_type = element_type(inputs[0].dtype());
    call.kv_type = element_type(inputs[1].dtype());
    call.qkv = inputs[0].data<void>();
    call.qkv_columns = inputs[0].shape(1);
    call.out = outputs[0].data<void>();
    call.keys = outputs[1].data<void>();
    call.values = outputs[2].data<void>();
    call.q_weight = optional_input(q_eps.has_value());
    call.k_weight = optional_input(k_eps.has_value());
    call.v_weight = optional_input(v_eps.has_value());
    call.rope = optional_input(rope_dims > 0);
    call.sinks = optional_input(has_sinks);
    call.alibi_slopes = optional_input(has_slopes);
    call.query_factors = optional_input(has_query_factors);
    call.q_eps = q_eps.value_or(0.0F);
    call.k_eps = k_eps.value_or(0.0F);
    call.v_eps = v_eps.value_or(0.0F);
    call.norm_after_rope = norm_after_rope;
    call.shared_kv = shared_kv;
    call.rope_dims = rope_dims;
    call.rope_interleaved = rope_interleaved;
    return call;
  }
};

}  // namespace

mx::array attention(const mx::array& qkv, KvLayer& layer,
                    const std::shared_ptr<const AttentionBatch>& batch,
                    const AttentionOptions& options) {
  check_attention(qkv, layer, *batch, options);
  require_sole_owner(layer.keys);
  require_sole_owner(layer.values);
  const bool rotates = options.rope && options.rope->dims > 0;
  Attention work{
      .batch = batch,
      .heads = options.heads,
      .kv_heads = options.kv_heads,
      .head_dim = options.head_dim,
      .value_dim = options.values(),
      .scale = options.scale,
      .window = options.window,
      .chunk = options.chunk,
      .softcap = options.softcap,
      .q_eps = options.q_norm ? std::optional(options.q_norm->eps) : std::nullopt,
      .k_eps = options.k_norm ? std::optional(options.k_norm->eps) : std::nullopt,
      .v_eps = options.v_norm ? std::optional(options.v_norm->eps) : std::nullopt,
      .rope_dims = rotates ? options.rope->dims : 0,
      .rope_interleaved = rotates && options.rope->interleaved,
      .norm_after_rope = options.norm_after_rope,
      .has_sinks = options.sinks.has_value(),
      .has_slopes = options.alibi_slopes.has_value(),
      .has_query_factors = options.query_factors.has_value(),
      .values_in_keys = options.values_in_keys,
      .shared_kv = options.shared_kv,
  };
  const std::vector<mx::Shape> shapes = {
      {qkv.shape(0), options.heads * options.values()}, layer.keys.shape(), layer.values.shape()};
  const std::vector<mx::Dtype> dtypes = {qkv.dtype(), layer.keys.dtype(), layer.values.dtype()};
  // The node's inputs must become the only owners of the pool.
  std::vector<mx::array> inputs = {qkv};
  inputs.push_back(std::move(layer.keys));
  inputs.push_back(std::move(layer.values));
  for (const std::optional<RmsNorm>* norm : {&options.q_norm, &options.k_norm, &options.v_norm}) {
    if (*norm) {
      inputs.push_back((*norm)->weight);
    }
  }
  if (rotates) {
    inputs.push_back(rope_table(batch, *options.rope));
  }
  for (const std::optional<mx::array>* vector :
       {&options.sinks, &options.alibi_slopes, &options.query_factors}) {
    if (*vector) {
      inputs.push_back(**vector);
    }
  }
  auto outputs = make_nodes(std::move(work), shapes, dtypes, inputs);
  layer.keys = std::move(outputs[1]);
  layer.values = std::move(outputs[2]);
  return std::move(outputs[0]);
}

}  // namespace espalier::kernels
