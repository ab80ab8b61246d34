#include "models/decoder.h"

#include <numeric>
#include <utility>

namespace espalier::models {
namespace {

namespace mx = mlx::core;

/// Makes room for the batch's rows and says where each sequence's keys lie.
std::shared_ptr<const layers::AttentionBatch> place_rows(const Batch& batch) {
  auto rows = std::make_shared<layers::AttentionBatch>();
  for (const Batch::Sequence& sequence : batch.sequences) {
    sequence.state->extend(sequence.rows);
    rows->push_back({.first_row = sequence.first_row,
                     .rows = sequence.rows,
                     .position = sequence.state->length(),
                     .block_table = sequence.state->block_table()});
  }
  return rows;
}

/// The rows of x [T, D] whose logits are wanted.
mx::array wanted_rows(const mx::array& x, const std::vector<int>& rows) {
  std::vector<int> all(static_cast<std::size_t>(x.shape(0)));
  std::iota(all.begin(), all.end(), 0);
  if (rows == all) {
    return x;
  }
  return mx::take(x, mx::array(rows.begin(), {static_cast<int>(rows.size())}, mx::int32), 0);
}

const layers::Norm* pointer(const std::optional<layers::Norm>& norm) {
  return norm ? &*norm : nullptr;
}

/// The stream [T, width] after the layer, from the stream before it and the attended values.
mx::array finish_layer(const DecoderLayer& layer, const mx::array& x, const mx::array& attended) {
  const mx::array after = layers::join(x, layer.attention_join, layer.attention.o_proj, attended);
  const mx::array hidden = layer.mlp.hidden(layer.parallel ? x : after, pointer(layer.mlp_norm));
  return layers::join(after, layer.mlp_join, layer.mlp.down_proj, hidden);
}

}  // namespace

Decoder::Decoder(Descriptor descriptor, DecoderModules modules, mx::Dtype dtype)
    : descriptor_(std::move(descriptor)), modules_(std::move(modules)), dtype_(dtype) {}

std::vector<state::KvLayerShape> Decoder::kv_layers() const {
  std::vector<state::KvLayerShape> shapes;
  for (const LayerDescriptor& layer : descriptor_.layers) {
    shapes.push_back({.kv_heads = layer.attention.kv_heads, .head_dim = layer.attention.head_dim});
  }
  return shapes;
}

mx::array Decoder::forward(const Batch& batch, state::KvPool& pool) {
  const std::shared_ptr<const layers::AttentionBatch> rows = place_rows(batch);
  const mx::array tokens(batch.tokens.begin(), {static_cast<int>(batch.tokens.size())}, mx::int32);
  mx::array x = kernels::embedding(tokens, modules_.embedding, descriptor_.embedding_scale, dtype_);
  for (std::size_t i = 0; i < modules_.layers.size(); ++i) {
    const DecoderLayer& layer = modules_.layers[i];
    mx::array attended = layer.attention.attend(x, pointer(layer.attention_norm),
                                                pool.layer(static_cast<int>(i)), rows);
    // Past the last layer's keys and values only the wanted rows matter.
    if (i + 1 == modules_.layers.size()) {
      if (batch.logits_rows.empty()) {
        mx::eval(attended);
        break;
      }
      x = wanted_rows(x, batch.logits_rows);
      attended = wanted_rows(attended, batch.logits_rows);
    }
    x = finish_layer(layer, x, attended);
  }
  for (const Batch::Sequence& sequence : batch.sequences) {
    sequence.state->advance(sequence.rows);
  }
  return batch.logits_rows.empty() ? mx::zeros({0, descriptor_.vocabulary}) : logits(x);
}

mx::array Decoder::logits(const mx::array& x) const {
  mx::array logits = modules_.head(x, {.norm = &modules_.final_norm, .f32_output = true});
  if (descriptor_.logit_scale != 1.0F) {
    logits = logits * mx::array(descriptor_.logit_scale);
  }
  if (descriptor_.logit_softcap != 0.0F) {
    const mx::array cap(descriptor_.logit_softcap);
    logits = mx::tanh(logits / cap) * cap;
  }
  return logits;
}

std::size_t Decoder::weight_bytes() const {
  std::size_t bytes = modules_.embedding.data.nbytes();
  for (const DecoderLayer& layer : modules_.layers) {
    bytes += layer.attention.qkv_proj.bytes() + layer.attention.o_proj.bytes() +
             layer.mlp.input.bytes() + layer.mlp.down_proj.bytes();
  }
  return descriptor_.tied_head ? bytes : bytes + modules_.head.bytes();
}

}  // namespace espalier::models
