#include "evaluation/fit.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/available_memory.h"
#include "generation/load_options.h"
#include "kernels/kv_block.h"
#include "models/audit.h"
#include "models/inspect.h"
#include "models/load_recurrent.h"
#include "models/state_shapes.h"
#include "state/kv_pool.h"

namespace espalier::evaluation {
namespace {

constexpr std::string_view default_format = "f16";
/// The program, its libraries and a tokenizer.
constexpr std::uint64_t program_bytes = 64U << 20U;
/// Of a value between two operations, at most f32.
constexpr std::uint64_t value_bytes = 4;

/// Values of one token that a layer has in memory at once, at most: the stream before and after,
/// its norm; and what the mixer or the feed-forward part makes of them.
std::uint64_t row_values(const models::LayerDescriptor& layer, int width) {
  std::int64_t mixer = 0;
  const auto of_attention = [](const models::AttentionDescriptor& part) {
    return std::int64_t{2} * (part.heads + part.kv_heads) * part.head_dim;
  };
  if (const auto* attention = std::get_if<models::AttentionDescriptor>(&layer.mixer)) {
    mixer = of_attention(*attention);
  } else if (const auto* latent = std::get_if<models::LatentAttentionDescriptor>(&layer.mixer)) {
    mixer = std::int64_t{4} * latent->heads * (latent->nope_dim + latent->rope_dim);
  } else if (const auto* recurrent = std::get_if<models::RecurrentDescriptor>(&layer.mixer)) {
    mixer = 4 * models::recurrent_state(*recurrent).channels;
  } else if (const auto* both = std::get_if<models::ParallelMixerDescriptor>(&layer.mixer)) {
    mixer = of_attention(both->attention) + 4 * models::recurrent_state(both->mamba).channels;
  }
  std::int64_t hidden = 0;
  if (const auto* mlp = std::get_if<models::MlpDescriptor>(&layer.feed_forward)) {
    hidden = mlp->hidden;
  } else if (const models::ExpertsDescriptor* experts = layer.experts(); experts != nullptr) {
    hidden = std::int64_t{experts->hidden} * experts->router.rule.chosen;
  }
  // Gate, up and their product.
  return static_cast<std::uint64_t>(3 * std::int64_t{width} + std::max(mixer, 3 * hidden));
}

/// Bytes of the keys and values of one request with so many positions: layers that see a window or
/// a chunk hold no more than that, the rows that are computed at a time, and a KV block.
std::uint64_t kv_bytes(const std::vector<state::KvLayerShape>& layers, mlx::core::Dtype dtype,
                       std::int64_t positions, int rows) {
  constexpr std::int64_t tokens = kernels::kv_block_tokens;
  std::vector<state::KvLayerShape> unlimited;
  std::ranges::copy_if(layers, std::back_inserter(unlimited),
                       [](const auto& layer) { return !layer.reach.limited(); });
  const std::int64_t whole = (positions + tokens - 1) / tokens * tokens;
  return static_cast<std::uint64_t>(whole) * state::KvPool::bytes_per_token(unlimited, dtype) +
         state::KvPool::limited_bytes(layers, dtype, static_cast<int>(positions), rows);
}

}  // namespace

FitReport fit(const std::filesystem::path& path, const FitOptions& options) {
  FitReport report;
  report.model = summarize(path);
  const models::Descriptor model = models::inspect_model(path).descriptor;
  report.repacked = models::audit_checkpoint(path);
  report.context = model.context;
  report.memory = options.memory != 0 ? options.memory : base::available_memory();

  const std::vector<state::KvLayerShape> shapes = models::kv_layers(model);
  std::uint64_t widest = 0;
  for (const auto& layer : model.layers) widest = std::max(widest, row_values(layer, model.width));
  const auto running = static_cast<std::uint64_t>(std::max(options.running, 1));
  report.state_per_request =
      state::RecurrentPool::bytes_per_sequence(models::recurrent_layers(model));
  report.workspace = program_bytes +
                     static_cast<std::uint64_t>(options.prefill_chunk) * widest * value_bytes +
                     running * static_cast<std::uint64_t>(model.vocabulary) * value_bytes +
                     running * report.state_per_request;
  const std::uint64_t fixed = report.repacked + report.workspace;
  const std::uint64_t left = report.memory - std::min(report.memory, fixed);
  constexpr std::array<std::pair<std::string_view, generation::KvType>, 3> formats = {{
      {"bf16", generation::KvType::bf16},
      {"f16", generation::KvType::f16},
      {"f32", generation::KvType::f32},
  }};
  for (const auto& [name, type] : formats) {
    FitReport::State& state = report.state[std::string(name)];
    const mlx::core::Dtype dtype = generation::kv_dtype(type);
    state.bytes_per_token = state::KvPool::bytes_per_token(shapes, dtype);
    std::int64_t least = 0;
    std::int64_t most = model.context;
    while (least < most) {
      const std::int64_t middle = (least + most + 1) / 2;
      const bool fits = kv_bytes(shapes, dtype, middle, options.prefill_chunk) * running <= left;
      (fits ? least : most) = fits ? middle : middle - 1;
    }
    state.largest_context = fixed <= report.memory ? least : 0;
    state.bytes_of_largest = kv_bytes(shapes, dtype, state.largest_context, options.prefill_chunk);
  }
  report.fits = report.state[std::string(default_format)].largest_context > 0;
  return report;
}

}  // namespace espalier::evaluation
