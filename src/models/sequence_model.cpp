#include "models/sequence_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "arrays/safetensors.h"
#include "base/error.h"
#include "layers/weight_reader.h"
#include "models/audit.h"
#include "models/checkpoint.h"
#include "models/classifier.h"
#include "models/decoder.h"
#include "models/registry.h"
#include "models/weight_schemes.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;

/// Rows computed at once: enough to fill the processor, few enough for the activations to fit.
constexpr std::size_t rows_at_once = 2048;

/// What follows the pooling, one after the other.
struct Head {
  struct Step {
    layers::Linear linear;
    enum class Function { none, tanh, gelu } function = Function::none;
    std::optional<layers::Norm> norm = {};
  };

  std::vector<Pooling> pooling;
  std::vector<Step> steps = {};
  bool normalize = false;
};

/// One sequence's rows [n, width] to [1, width].
mx::array pool(const mx::array& rows, Pooling pooling) {
  const int count = rows.shape(0);
  switch (pooling) {
    case Pooling::first:
      return mx::slice(rows, {0, 0}, {1, rows.shape(1)});
    case Pooling::last:
      return mx::slice(rows, {count - 1, 0}, {count, rows.shape(1)});
    case Pooling::max:
      return mx::max(rows, 0, true);
    case Pooling::mean:
      return mx::sum(rows, 0, true) * mx::array(1.0F / static_cast<float>(count));
    case Pooling::mean_sqrt_length:
      return mx::sum(rows, 0, true) * mx::array(1.0F / std::sqrt(static_cast<float>(count)));
  }
  throw std::logic_error("[pool] unknown pooling");
}

mx::array gelu(const mx::array& x) {
  return x * mx::array(0.5F) * (mx::array(1.0F) + mx::erf(x * mx::array(std::sqrt(0.5F))));
}

/// The pooled rows through the head: [sequences, dimensions].
mx::array apply(const Head& head, mx::array x) {
  for (const Head::Step& step : head.steps) {
    x = step.linear(mx::contiguous(x));
    if (step.function != Head::Step::Function::none) {
      x = step.function == Head::Step::Function::tanh ? mx::tanh(x) : gelu(x);
    }
    if (step.norm) {
      x = (*step.norm)(x);
    }
  }
  if (head.normalize) {
    const mx::array length = mx::sqrt(mx::sum(mx::square(x), -1, true));
    x = x / mx::maximum(length, mx::array(1e-12F));
  }
  return x;
}

class HeadedModel : public SequenceModel {
 public:
  HeadedModel(std::unique_ptr<Decoder> body, Head head, int dimensions,
              std::optional<EmbeddingDescriptor> embedding)
      : body_(std::move(body)),
        head_(std::move(head)),
        dimensions_(dimensions),
        embedding_(std::move(embedding)) {}

  const Descriptor& descriptor() const override { return body_->descriptor(); }
  const std::optional<EmbeddingDescriptor>& embedding() const override { return embedding_; }
  int dimensions() const override { return dimensions_; }
  std::size_t weight_bytes() const override { return body_->weight_bytes(); }
  std::size_t packed_bytes() const override { return body_->packed_bytes(); }

  mx::array run(const std::vector<SequenceInput>& sequences) override {
    std::vector<mx::array> parts;
    for (std::size_t first = 0; first < sequences.size();) {
      std::size_t last = first;
      std::size_t rows = 0;
      while (last < sequences.size() &&
             (last == first || rows + sequences[last].tokens.size() <= rows_at_once)) {
        rows += sequences[last++].tokens.size();
      }
      parts.push_back(run_together({sequences.begin() + static_cast<std::ptrdiff_t>(first),
                                    sequences.begin() + static_cast<std::ptrdiff_t>(last)}));
      parts.back().eval();
      first = last;
    }
    mx::array all = parts.empty() ? mx::zeros({0, dimensions_}) : mx::concatenate(parts, 0);
    all.eval();
    return all;
  }

 private:
  mx::array run_together(const std::vector<SequenceInput>& sequences) {
    int blocks = 0;
    for (const SequenceInput& sequence : sequences) {
      blocks += (static_cast<int>(sequence.tokens.size()) + kernels::kv_block_tokens - 1) /
                kernels::kv_block_tokens;
    }
    state::KvPool memory(
        body_->kv_layers(), blocks, mx::float32,
        {.layers = body_->recurrent_layers(), .slots = static_cast<int>(sequences.size())});
    std::vector<state::SequenceState> states;
    states.reserve(sequences.size());
    Batch batch;
    for (const SequenceInput& sequence : sequences) {
      states.emplace_back(memory);
      const int rows = static_cast<int>(sequence.tokens.size());
      batch.sequences.push_back({.first_row = static_cast<int>(batch.tokens.size()),
                                 .rows = rows,
                                 .state = &states.back()});
      batch.tokens.insert(batch.tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
      const int second = sequence.second_segment.value_or(rows);
      batch.token_types.insert(batch.token_types.end(), static_cast<std::size_t>(second), 0);
      batch.token_types.resize(batch.tokens.size(), 1);
    }
    const mx::array hidden = mx::astype(body_->hidden(batch, memory), mx::float32);
    std::vector<mx::array> pooled;
    for (const Batch::Sequence& sequence : batch.sequences) {
      const mx::array rows = mx::slice(hidden, {sequence.first_row, 0},
                                       {sequence.first_row + sequence.rows, hidden.shape(1)});
      std::vector<mx::array> kinds;
      for (const Pooling pooling : head_.pooling) {
        kinds.push_back(pool(rows, pooling));
      }
      pooled.push_back(kinds.size() == 1 ? kinds[0] : mx::concatenate(kinds, 1));
    }
    mx::array vectors = apply(head_, mx::concatenate(pooled, 0));
    // While the pool is there.
    vectors.eval();
    return vectors;
  }

  std::unique_ptr<Decoder> body_;
  Head head_;
  int dimensions_;
  std::optional<EmbeddingDescriptor> embedding_;
};

/// What may stand before all of a body's names: sentence-transformers saves the bare body, a
/// classifier puts its name before it.
constexpr std::array<std::string_view, 5> body_prefixes = {"", "model.", "bert.", "roberta.",
                                                           "nomic_bert."};

/// Makes the description's names those of the file.
void fit_names(Descriptor& descriptor, const layers::WeightReader& weights) {
  TensorNames& names = descriptor.names;
  const auto bare = [](const std::string& name) {
    return name.starts_with("model.") ? name.substr(6) : name;
  };
  const std::string embedding = bare(names.embedding);
  for (const std::string_view prefix : body_prefixes) {
    if (!weights.contains(std::string(prefix) + embedding + ".weight")) {
      continue;
    }
    for (std::string* name : {&names.embedding, &names.positions, &names.embedding_norm,
                              &names.token_types, &names.final_norm, &names.layers}) {
      *name = name->empty() ? *name : std::string(prefix) + bare(*name);
    }
    return;
  }
}

layers::Linear dense_linear(layers::WeightReader& weights, const std::string& name, int outputs,
                            int inputs, bool bias) {
  std::optional<mx::array> values;
  if (bias) {
    values = layers::to_array(weights.vector(name + ".bias", outputs));
  }
  return layers::Linear({weights.matrix(name + ".weight", outputs, inputs)}, std::move(values),
                        layers::ActivationFormat::f32);
}

Head embedding_head(const EmbeddingDescriptor& embedding) {
  Head head{.pooling = embedding.pooling, .normalize = embedding.normalize};
  for (const DenseDescriptor& dense : embedding.dense) {
    layers::WeightReader weights(
        arrays::open_safetensors(std::filesystem::path(dense.folder) / "model.safetensors"));
    head.steps.push_back(
        {.linear = dense_linear(weights, "linear", dense.outputs, dense.inputs, dense.bias),
         .function = dense.tanh ? Head::Step::Function::tanh : Head::Step::Function::none});
  }
  return head;
}

Head classifier_head(const ClassifierDescriptor& classifier, layers::WeightReader& weights,
                     int width) {
  Head head{.pooling = {classifier.pooling}};
  if (!classifier.dense.empty()) {
    Head::Step step{
        .linear = dense_linear(weights, classifier.dense, width, width, classifier.dense_bias),
        .function = classifier.function == ClassifierDescriptor::Function::tanh
                        ? Head::Step::Function::tanh
                        : Head::Step::Function::gelu};
    if (!classifier.norm.empty()) {
      std::optional<mx::array> bias;
      if (classifier.norm_bias) {
        bias = layers::to_array(weights.vector(classifier.norm + ".bias", width));
      }
      step.norm = layers::Norm(layers::LayerNorm{
          .weight = layers::to_array(weights.vector(classifier.norm + ".weight", width)),
          .bias = std::move(bias),
          .eps = classifier.norm_eps});
    }
    head.steps.push_back(std::move(step));
  }
  head.steps.push_back({.linear = dense_linear(weights, classifier.output, classifier.labels, width,
                                               classifier.output_bias)});
  return head;
}

/// Width of what the body gives.
int hidden_width(const Descriptor& descriptor) {
  return descriptor.embedding_width > 0 ? descriptor.embedding_width : descriptor.width;
}

/// Width of what the head gives.
int dimensions_of(const Descriptor& descriptor, const EmbeddingDescriptor& embedding) {
  const auto vectors = static_cast<int>(embedding.pooling.size());
  return embedding.dense.empty() ? hidden_width(descriptor) * vectors
                                 : embedding.dense.back().outputs;
}

}  // namespace

bool is_sequence_model(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder) || !std::filesystem::exists(folder / "config.json")) {
    return false;
  }
  if (std::filesystem::exists(folder / "modules.json")) {
    return true;
  }
  const ConfigReader config = open_config(folder / "config.json");
  return read_classifier(config).has_value() || is_encoder(config.string("model_type", ""));
}

std::unique_ptr<SequenceModel> load_sequence_model(const std::filesystem::path& folder,
                                                   const LoadOptions& options) {
  ConfigReader config = open_config(folder / "config.json");
  const std::optional<ClassifierDescriptor> classifier = read_classifier(config);
  // Nothing is generated, so where a text ends does not matter.
  for (const char* key :
       {"sentence_transformers", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"}) {
    config.ignore(key);
  }
  quantization::WeightSchemes schemes = read_weight_schemes(config);
  schemes.trellis_contract = options.trellis;
  Descriptor descriptor = describe_model(config);
  layers::WeightReader weights(arrays::open_safetensors_folder(folder), std::move(schemes),
                               options.place);
  if (options.check_weights) {
    weights.check_values();
  }
  fit_names(descriptor, weights);
  // There is no language head, or it is not used.
  descriptor.tied_head = true;
  std::optional<EmbeddingDescriptor> embedding = read_embedding(folder);
  if (!classifier && !embedding) {
    // What sentence-transformers does with a bare encoder.
    embedding = EmbeddingDescriptor{.pooling = {Pooling::mean}};
  }
  DecoderModules modules = load_decoder(descriptor, weights, options.activations, nullptr);
  Head head = classifier ? classifier_head(*classifier, weights, hidden_width(descriptor))
                         : embedding_head(*embedding);
  check_all_tensors_read(descriptor, weights);
  check_trellis_contract(options.trellis, weights);
  const int dimensions = classifier ? classifier->labels : dimensions_of(descriptor, *embedding);
  const mx::Dtype dtype = options.dtype.value_or(mx::float32);
  return std::make_unique<HeadedModel>(
      std::make_unique<Decoder>(std::move(descriptor), std::move(modules), dtype), std::move(head),
      dimensions, classifier ? std::nullopt : std::move(embedding));
}

}  // namespace espalier::models
