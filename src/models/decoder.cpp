#include "models/decoder.h"

#include <numeric>
#include <utility>

#include "models/state_shapes.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;

/// Where the batch's rows find their sequences' states.
struct BatchRows {
  std::vector<std::shared_ptr<const layers::AttentionBatch>> attention;  // of each of KV's groups
  std::shared_ptr<const layers::RecurrentBatch> recurrent;
};

/// Makes room for the batch's rows and says where each sequence's state lies.
BatchRows place_rows(const Batch& batch, const state::KvPool& pool) {
  auto recurrent = std::make_shared<layers::RecurrentBatch>();
  for (const Batch::Sequence& sequence : batch.sequences) {
    sequence.state->extend(sequence.rows);
    recurrent->push_back({.first_row = sequence.first_row,
                          .rows = sequence.rows,
                          .position = sequence.state->length(),
                          .slot = sequence.state->slot()});
  }
  BatchRows rows{.attention = {}, .recurrent = std::move(recurrent)};
  for (int group = 0; group < pool.groups(); ++group) {
    auto attention = std::make_shared<layers::AttentionBatch>();
    for (const Batch::Sequence& sequence : batch.sequences) {
      attention->push_back({.first_row = sequence.first_row,
                            .rows = sequence.rows,
                            .position = sequence.state->length(),
                            .block_table = sequence.state->block_table(group)});
    }
    rows.attention.push_back(std::move(attention));
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

bool keeps_kv(const Mixer& mixer) {
  return std::holds_alternative<layers::Attention>(mixer) ||
         std::holds_alternative<layers::LatentAttention>(mixer) ||
         std::holds_alternative<layers::ParallelMixer>(mixer);
}

bool keeps_recurrent(const Mixer& mixer) {
  return std::holds_alternative<layers::RecurrentMixer>(mixer) ||
         std::holds_alternative<layers::ParallelMixer>(mixer);
}

/// The mixed rows of one layer, before its output matrix.
struct Mix {
  const mx::array& x;
  const layers::Norm* norm;
  kernels::KvLayer* kv;                // of layers with keys and values
  kernels::RecurrentLayer* recurrent;  // of recurrent layers
  const std::shared_ptr<const layers::AttentionBatch>& attention;
  const BatchRows& rows;

  mx::array operator()(const std::monostate&) const { return x; }
  template <class Attention>
  mx::array operator()(const Attention& part) const {
    return part.attend(x, norm, *kv, attention);
  }
  mx::array operator()(const layers::RecurrentMixer& part) const {
    const layers::RecurrentCall call{.state = *recurrent, .batch = rows.recurrent};
    return std::visit([&](const auto& mixer) { return mixer.mix(x, norm, call); }, part);
  }
  mx::array operator()(const layers::EncoderAttention& part) const {
    return part.attend(x, norm, *attention);
  }
  mx::array operator()(const layers::ParallelMixer& part) const {
    return part.mix(x, norm, *kv, attention, {.state = *recurrent, .batch = rows.recurrent});
  }
};

/// `stream` joined by the mixed rows.
struct JoinMixed {
  const mx::array& stream;
  const layers::Join& how;
  const mx::array& mixed;

  mx::array operator()(const std::monostate&) const { return stream; }
  template <class Attention>
  mx::array operator()(const Attention& part) const {
    return layers::join(stream, how, part.o_proj, mixed);
  }
  mx::array operator()(const layers::RecurrentMixer& part) const {
    return std::visit(
        [&](const auto& mixer) { return layers::join(stream, how, mixer.out_proj, mixed); }, part);
  }
  mx::array operator()(const layers::ParallelMixer& part) const {
    return part.join(stream, how, mixed);
  }
};

/// `stream` joined by the feed-forward part of norm(x).
struct JoinFeedForward {
  const mx::array& stream;
  const layers::Join& how;
  const mx::array& x;
  const layers::Norm* norm;

  mx::array operator()(const std::monostate&) const { return stream; }
  mx::array operator()(const layers::Mlp& part) const {
    return layers::join(stream, how, part.down_proj, part.hidden(x, norm));
  }
  mx::array operator()(const layers::Experts& part) const {
    return layers::join(stream, how, part(norm == nullptr ? x : (*norm)(x)));
  }
  mx::array operator()(const layers::ParallelFeedForward& part) const {
    return layers::join(stream, how, part(x, norm));
  }
};

/// `predicted` [T, streams * width] corrected by the layer's result, its active stream.
mx::array correct_streams(const DecoderLayer& layer, const mx::array& predicted,
                          const mx::array& active, const mx::array* layer_input) {
  const mx::array corrected = layer.alt_up->correct(predicted, active);
  return layer.layer_input ? layer.alt_up->add_to_others(
                                 corrected, layer.layer_input->part(layer.alt_up->scaled(corrected),
                                                                    *layer_input))
                           : corrected;
}

/// The stream [T, width] after the layer, or all of its streams, from the same before it and the
/// mixed rows.
mx::array finish_layer(const DecoderLayer& layer, const mx::array& streams, const mx::array& mixed,
                       const mx::array* layer_input) {
  const mx::array x = layer.alt_up ? layer.alt_up->read(streams) : streams;
  mx::array after = std::visit(JoinMixed{x, layer.mixer_join, mixed}, layer.mixer);
  if (layer.laurel) {
    after = (*layer.laurel)(after, (*layer.mixer_norm)(x));
  }
  if (layer.normed_residual) {
    const mx::array normed = (*layer.mlp_norm)(after);
    return std::visit(JoinFeedForward{normed, layer.mlp_join, normed, nullptr}, layer.feed_forward);
  }
  mx::array y = std::visit(
      JoinFeedForward{after, layer.mlp_join, layer.parallel ? x : after, pointer(layer.mlp_norm)},
      layer.feed_forward);
  if (layer.alt_up) {
    return correct_streams(layer, streams, y, layer_input);
  }
  if (layer.layer_input) {
    y = (*layer.layer_input)(y, *layer_input);
  }
  return layer.output_scale ? y * mx::astype(*layer.output_scale, y.dtype()) : y;
}

/// Bytes of a part's packed weights.
struct WeightBytes {
  std::size_t operator()(const std::monostate&) const { return 0; }
  std::size_t operator()(const layers::RecurrentMixer& part) const {
    return std::visit([](const auto& mixer) { return mixer.bytes(); }, part);
  }
  std::size_t operator()(const layers::Mlp& part) const {
    return part.input.bytes() + part.down_proj.bytes();
  }
  template <class Part>
  std::size_t operator()(const Part& part) const {
    return part.bytes();
  }
};

}  // namespace

Decoder::Decoder(Descriptor descriptor, DecoderModules modules, mx::Dtype dtype)
    : descriptor_(std::move(descriptor)), modules_(std::move(modules)), dtype_(dtype) {}

std::vector<state::KvLayerShape> Decoder::kv_layers() const {
  return models::kv_layers(descriptor_);
}

std::vector<state::RecurrentLayerShape> Decoder::recurrent_layers() const {
  return models::recurrent_layers(descriptor_);
}

mx::array Decoder::run(const Batch& batch, state::KvPool& pool,
                       const std::vector<int>& wanted) const {
  const BatchRows rows = place_rows(batch, pool);
  int recurrent_layer = 0;
  const mx::array tokens(batch.tokens.begin(), {static_cast<int>(batch.tokens.size())}, mx::int32);
  mx::array x = embed(batch, *rows.attention.front());
  std::vector<mx::array> layer_inputs;
  if (modules_.layer_inputs) {
    layer_inputs = (*modules_.layer_inputs)(tokens, x);
  }
  if (modules_.streams) {
    x = (*modules_.streams)(x);
  }
  for (std::size_t i = 0; i < modules_.layers.size(); ++i) {
    const DecoderLayer& layer = modules_.layers[i];
    if (layer.alt_up) {
      x = layer.alt_up->predict(x);
    }
    if (layer.normed_residual) {
      x = (*layer.mixer_norm)(x);
    }
    kernels::KvLayer* kv = keeps_kv(layer.mixer) ? &pool.layer(layer.kv_index) : nullptr;
    kernels::RecurrentLayer* recurrent =
        keeps_recurrent(layer.mixer) ? &pool.recurrent().layer(recurrent_layer++) : nullptr;
    const int group = kv == nullptr ? 0 : pool.group_of(layer.kv_index);
    const layers::Norm* norm = layer.normed_residual ? nullptr : pointer(layer.mixer_norm);
    const mx::array read = layer.alt_up ? layer.alt_up->read(x) : x;
    mx::array mixed =
        std::visit(Mix{read, norm, kv, recurrent, rows.attention[group], rows}, layer.mixer);
    // Past the last layer's keys and values only the wanted rows matter.
    if (&layer == &modules_.layers.back()) {
      if (wanted.empty()) {
        mx::eval(mixed);
        break;
      }
      x = wanted_rows(x, wanted);
      mixed = wanted_rows(mixed, wanted);
      for (mx::array& input : layer_inputs) {
        input = wanted_rows(input, wanted);
      }
    }
    x = finish_layer(layer, x, mixed, layer_inputs.empty() ? nullptr : &layer_inputs[i]);
  }
  for (const Batch::Sequence& sequence : batch.sequences) {
    sequence.state->advance(sequence.rows);
  }
  return modules_.streams ? modules_.streams->merged(x) : x;
}

mx::array Decoder::forward(const Batch& batch, state::KvPool& pool) {
  const mx::array x = run(batch, pool, batch.logits_rows);
  return batch.logits_rows.empty() ? mx::zeros({0, descriptor_.vocabulary}) : logits(x);
}

mx::array Decoder::hidden(const Batch& batch, state::KvPool& pool) const {
  std::vector<int> all(batch.tokens.size());
  std::iota(all.begin(), all.end(), 0);
  const mx::array x = run(batch, pool, all);
  return modules_.head_input ? (*modules_.head_input)(x, {.norm = &modules_.final_norm})
                             : modules_.final_norm(x);
}

mx::array Decoder::embed(const Batch& batch, const layers::AttentionBatch& rows) const {
  const mx::array tokens(batch.tokens.begin(), {static_cast<int>(batch.tokens.size())}, mx::int32);
  mx::array x = kernels::embedding(tokens, modules_.embedding, descriptor_.embedding_scale, dtype_);
  if (modules_.embedding_output) {
    x = (*modules_.embedding_output)(x);
  }
  if (modules_.positions) {
    std::vector<std::int32_t> positions(tokens.size());
    for (const kernels::AttentionRows& sequence : rows) {
      for (int row = 0; row < sequence.rows; ++row) {
        positions[sequence.first_row + row] = sequence.position + row + modules_.positions->offset;
      }
    }
    const mx::array indices(positions.begin(), {static_cast<int>(positions.size())}, mx::int32);
    x = x + kernels::embedding(indices, modules_.positions->table, 1.0F, dtype_);
  }
  if (modules_.token_types) {
    std::vector<std::int32_t> types = batch.token_types;
    types.resize(batch.tokens.size(), 0);
    const mx::array indices(types.begin(), {static_cast<int>(types.size())}, mx::int32);
    x = x + kernels::embedding(indices, *modules_.token_types, 1.0F, dtype_);
  }
  return modules_.embedding_norm ? (*modules_.embedding_norm)(x) : x;
}

mx::array Decoder::logits(const mx::array& x) const {
  const layers::LinearCall normed{.norm = &modules_.final_norm};
  mx::array logits = modules_.head_input
                         ? modules_.head((*modules_.head_input)(x, normed), {.f32_output = true})
                         : modules_.head(x, {.norm = normed.norm, .f32_output = true});
  if (descriptor_.logit_scale != 1.0F) {
    logits = logits * mx::array(descriptor_.logit_scale);
  }
  if (descriptor_.logit_softcap != 0.0F) {
    logits = kernels::elementwise(logits, {.kind = kernels::ElementFunction::Kind::soft_cap,
                                           .constants = {descriptor_.logit_softcap}});
  }
  return logits;
}

std::size_t Decoder::weight_bytes() const {
  std::size_t bytes = modules_.embedding.bytes();
  for (const DecoderLayer& layer : modules_.layers) {
    bytes += std::visit(WeightBytes(), layer.mixer) + std::visit(WeightBytes(), layer.feed_forward);
  }
  return descriptor_.tied_head ? bytes : bytes + modules_.head.bytes();
}

}  // namespace espalier::models
