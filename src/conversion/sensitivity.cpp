#include "conversion/sensitivity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "conversion/allocation.h"
#include "conversion/folder_plan.h"
#include "conversion/plan.h"
#include "conversion/source.h"
#include "conversion/text_parts.h"
#include "generation/bundle.h"
#include "generation/divergence.h"
#include "kernels/kv_block.h"
#include "kernels/trellis.h"
#include "mlx/mlx.h"
#include "models/load_model.h"
#include "quantization/trellis_encoder.h"
#include "state/kv_pool.h"

namespace espalier::conversion {
namespace {

namespace mx = mlx::core;

using arrays::StorageType;
using arrays::TensorView;
using base::UsageError;
using kernels::TrellisFormat;
using quantization::MlxFormat;
using quantization::MlxMode;
using tokenizer::TokenId;

constexpr std::array widths = {2, 3, 4, 5, 6, 8};
/// Few enough that each layer's damage stands out from rounding.
constexpr int probe_width = 3;
constexpr int sequences = 4;
constexpr std::size_t sequence_tokens = 96;

/// The tensors of a file, one of them with other values.
class Overlay : public arrays::TensorFile {
 public:
  Overlay(std::shared_ptr<const arrays::TensorFile> file, std::string name,
          std::vector<float> values)
      : file_(std::move(file)), values_(std::move(values)), tensors_(file_->tensors()) {
    const auto own = std::ranges::find(tensors_, name, &TensorView::name);
    own->type = StorageType::f32;
    own->bytes = std::as_bytes(std::span(values_));
    own_ = &*own;
  }

  const std::vector<TensorView>& tensors() const override { return tensors_; }
  const TensorView* find(std::string_view name) const override {
    return name == own_->name ? own_ : file_->find(name);
  }
  std::string path() const override { return file_->path(); }
  void release(const TensorView& tensor) const override {
    if (tensor.name != own_->name) file_->release(tensor);
  }

 private:
  std::shared_ptr<const arrays::TensorFile> file_;
  std::vector<float> values_;
  std::vector<TensorView> tensors_;
  const TensorView* own_;
};

std::string bits_text(double bits) {
  std::ostringstream text;
  text << bits;
  return text.str();
}

/// Logits of every position, [rows, V].
mx::array logits_of(models::Model& model, const std::vector<std::vector<TokenId>>& parts) {
  constexpr int blocks =
      sequences * (static_cast<int>(sequence_tokens) / kernels::kv_block_tokens + 1);
  state::KvPool pool(model.kv_layers(), blocks, mx::float32);
  std::vector<state::SequenceState> states;
  states.reserve(parts.size());
  models::Batch batch;
  for (const auto& part : parts) {
    states.emplace_back(pool);
    const int first = static_cast<int>(batch.tokens.size());
    batch.sequences.push_back(
        {.first_row = first, .rows = static_cast<int>(part.size()), .state = &states.back()});
    batch.tokens.insert(batch.tokens.end(), part.begin(), part.end());
  }
  for (int row = 0; row < static_cast<int>(batch.tokens.size()); ++row) {
    batch.logits_rows.push_back(row);
  }
  mx::array logits = mx::contiguous(model.forward(batch, pool));
  logits.eval();
  return logits;
}

double mean_divergence(const mx::array& a, const mx::array& b) {
  const std::vector<double> values = generation::divergences(a, b);
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// A tensor quantized to `bits` and back; adds the squared error to `error`.
void quantize_rows(const SourceTensor& tensor, const MlxFormat& format, std::int64_t row,
                   std::span<float> values, double& error) {
  tensor.read(row, 1, values);
  const std::size_t groups = values.size() / static_cast<std::size_t>(format.group);
  std::vector<std::byte> codes(values.size() * static_cast<std::size_t>(format.bits) / 8);
  std::vector<float> scales(groups);
  std::vector<float> biases(groups);
  std::vector<float> original(values.begin(), values.end());
  quantization::encode_affine(format, values, codes, scales, biases);
  quantization::decode_affine(format, codes, scales, biases, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    error += std::pow(static_cast<double>(values[i]) - original[i], 2);
  }
}

struct Quantized {
  std::vector<float> values;  // empty unless asked for
  double error = 0;           // summed squares
};

Quantized quantize(const SourceTensor& tensor, const MlxFormat& format, bool keep) {
  Quantized result;
  const auto columns = static_cast<std::size_t>(tensor.columns());
  if (keep) result.values.resize(static_cast<std::size_t>(tensor.elements()));
  std::vector<double> errors(static_cast<std::size_t>(tensor.rows()));
  base::TileCounter rows(errors.size());
  base::compute_pool().run([&](int) {
    std::vector<float> scratch(columns);
    for (std::size_t row; rows.next(row);) {
      const std::span<float> target =
          keep ? std::span(result.values).subspan(row * columns, columns) : std::span(scratch);
      quantize_rows(tensor, format, static_cast<std::int64_t>(row), target, errors[row]);
    }
  });
  tensor.release(0, tensor.rows());
  for (const double error : errors) result.error += error;
  return result;
}

/// Where a planned tensor lies in the file, unquantized.
const SourceTensor& stored_tensor(const Source& source, const PlannedTensor& planned) {
  const auto stored = std::ranges::find(source.tensors, planned.source.stored_name(),
                                        [](const SourceTensor& tensor) { return tensor.name(); });
  if (stored == source.tensors.end() || stored->foreign() ||
      !std::holds_alternative<StorageType>(stored->encoding())) {
    throw base::LoadError(source.path.string() +
                          ": weights that are quantized already cannot be measured");
  }
  return *stored;
}

[[noreturn]] void too_few_bits(double bits) {
  throw UsageError("no allocation takes so few bits as " + bits_text(bits) + " a weight");
}

/// A layer that can be quantized.
struct Layer {
  const SourceTensor* tensor;  // as the file has it
  std::string name;            // in Hugging Face's layout
};

/// What a budget leaves to choose.
struct FreeLayers {
  std::vector<Layer> layers;
  double overhead = 0;  // bits a weight beside its code's
  double budget = 0;    // bits that a weight may have on average
};

/// The layers whose bits neither rules nor their shapes settle.
FreeLayers free_layers(const Source& source, ConvertOptions conversion, double wanted) {
  conversion.quantize->bits = widths[0];
  const Plan narrow = prepare_folder(source, conversion).plan;
  conversion.quantize->bits = widths[1];
  const Plan wider = prepare_folder(source, conversion).plan;
  FreeLayers result;
  double all = 0;
  double fixed = 0;  // bits
  double fewest = 0;
  double values = 0;  // of the free ones
  for (std::size_t i = 0; i < narrow.tensors.size(); ++i) {
    const PlannedTensor& tensor = narrow.tensors[i];
    const double bits = 8.0 * static_cast<double>(stored_bytes(tensor));
    all += static_cast<double>(tensor.source.elements());
    if (tensor.target == wider.tensors[i].target) {
      fixed += bits;
      continue;
    }
    fewest += bits;
    values += static_cast<double>(tensor.source.elements());
    result.layers.push_back({&stored_tensor(source, tensor), layer_name(tensor.source.name())});
  }
  if (result.layers.empty()) {
    throw UsageError("there is no layer whose bits could be chosen");
  }
  if (wanted * all - fixed < fewest) too_few_bits(wanted);
  result.overhead = fewest / values - widths[0];
  result.budget = (wanted * all - fixed) / values;
  return result;
}

/// Measures what changed values of one tensor do to the model's answers.
class DamageMeter {
 public:
  DamageMeter(const Source& source, const std::string& text)
      : source_(source),
        parts_(cut_text(generation::load_text_bundle(source.path)
                            .tokenizer->encode(text, tokenizer::SpecialTokens::add),
                        sequences, sequence_tokens)),
        reference_(logits_of(*models::load_model(source.path, load, source.file), parts_)) {}

  /// Divergence from the unchanged model, in nats a token.
  double damage(const std::string& tensor, std::vector<float> values) const {
    const auto changed = std::make_shared<Overlay>(source_.file, tensor, std::move(values));
    return mean_divergence(reference_,
                           logits_of(*models::load_model(source_.path, load, changed), parts_));
  }

 private:
  static inline const models::LoadOptions load{.dtype = mx::float32,
                                               .activations = layers::ActivationFormat::f32};

  const Source& source_;
  std::vector<std::vector<TokenId>> parts_;
  mx::array reference_;
};

/// A matrix that becomes trellis codes.
struct CodedLayer {
  const SourceTensor* tensor;  // as the file has it
  std::string name;            // in Hugging Face's layout
  TrellisFormat probe;
  std::map<double, TrellisFormat> widths;  // by the bits of a weight, the scales' share included
};

/// What it can become. Of formats that take as many bits the one without halves.
CodedLayer coded_layer(const Source& source, const PlannedTensor& planned,
                       const TrellisFormat& format) {
  CodedLayer layer{&stored_tensor(source, planned), layer_name(planned.source.name()), format, {}};
  for (const double bits : {4.0, 3.5, 3.0, 2.5, 2.0}) {
    TrellisFormat width = format;
    width.bits = static_cast<int>(bits);
    width.half_bit = bits != width.bits;
    PlannedTensor tensor = planned;
    tensor.target = width;
    layer.widths.emplace(8.0 * static_cast<double>(stored_bytes(tensor)) /
                             static_cast<double>(planned.source.elements()),
                         width);
  }
  return layer;
}

/// Square error over the variance of normally distributed weights: those of the table in
/// docs/trellis.md, whatever the state and code, since only their ratios count.
double relative_error(const TrellisFormat& format) {
  constexpr std::array<double, 3> whole = {.0746, .0195, .0050};
  const double narrow = whole.at(static_cast<std::size_t>(format.bits) - 2);
  return format.half_bit ? (narrow + whole.at(static_cast<std::size_t>(format.bits) - 1)) / 2
                         : narrow;
}

/// The values that coding leaves, [outputs, inputs].
std::vector<float> decoded(const SourceTensor& tensor, const TrellisFormat& format,
                           quantization::TrellisScale scale) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  tensor.read(0, tensor.rows(), values);
  tensor.release(0, tensor.rows());
  const bool along_inputs = format.axis == 1;
  const auto rows = static_cast<int>(along_inputs ? tensor.rows() : tensor.columns());
  const auto columns = static_cast<int>(along_inputs ? tensor.columns() : tensor.rows());
  if (!along_inputs) {
    const mx::array weight(values.begin(), {columns, rows}, mx::float32);
    mx::array turned = mx::contiguous(mx::transpose(weight));
    turned.eval();
    std::copy_n(turned.data<float>(), values.size(), values.begin());
  }
  const quantization::TrellisCodes codes =
      quantization::encode_trellis(values.data(), rows, columns, format, scale);
  const auto words = format.words(columns / kernels::trellis_block_weights);
  const kernels::TrellisMatrix matrix = kernels::pack_trellis(
      {"probe.weight", StorageType::u32, {rows, words}, std::as_bytes(std::span(codes.words))},
      {"probe.scales", StorageType::f16, {rows}, std::as_bytes(std::span(codes.scales))}, format);
  mx::array expanded = mx::contiguous(kernels::expand_trellis(matrix, mx::float32));
  expanded.eval();
  std::copy_n(expanded.data<float>(), values.size(), values.begin());
  return values;
}

}  // namespace

std::map<std::string, MlxFormat> choose_formats(const BudgetOptions& options,
                                                const ConvertOptions& conversion) {
  const Source source = open_source(options.source);
  const auto [layers, overhead, budget] = free_layers(source, conversion, options.bits_per_weight);
  const int group = conversion.quantize->group;
  const DamageMeter meter(source, options.text);
  std::vector<Choice> choices;
  for (const Layer& layer : layers) {
    if (options.cancelled.cancelled()) throw Interrupted();
    MlxFormat format{MlxMode::affine, probe_width, group};
    Quantized probe = quantize(*layer.tensor, format, true);
    const double damage = meter.damage(layer.tensor->name(), std::move(probe.values));
    Choice choice{layer.name, layer.tensor->elements(), {}};
    for (const int bits : widths) {
      format.bits = bits;
      const double error = quantize(*layer.tensor, format, false).error;
      choice.damage[bits] = probe.error > 0 ? damage * error / probe.error : 0;
    }
    choices.push_back(std::move(choice));
    if (options.progress) {
      options.progress(static_cast<int>(choices.size()), static_cast<int>(layers.size()));
    }
  }
  std::map<std::string, MlxFormat> formats;
  for (const auto& [name, bits] : allocate(choices, overhead, budget)) {
    formats[name] = {MlxMode::affine, static_cast<int>(bits), group};
  }
  return formats;
}

std::map<std::string, TrellisFormat> choose_trellis(const BudgetOptions& options,
                                                    const ConvertOptions& conversion) {
  const Source source = open_source(options.source);
  const Plan plan = prepare_folder(source, conversion).plan;
  double all = 0;
  double left = 0;  // bits for what is coded
  std::vector<CodedLayer> layers;
  for (const PlannedTensor& tensor : plan.tensors) {
    all += static_cast<double>(tensor.source.elements());
    const auto* format = std::get_if<TrellisFormat>(&tensor.target);
    if (format == nullptr) {
      left -= 8.0 * static_cast<double>(stored_bytes(tensor));
    } else {
      layers.push_back(coded_layer(source, tensor, *format));
    }
  }
  left += all * options.bits_per_weight;
  double fewest = 0;
  double coded = 0;
  for (const CodedLayer& layer : layers) {
    const auto values = static_cast<double>(layer.tensor->elements());
    fewest += values * layer.widths.begin()->first;
    coded += values;
  }
  if (layers.empty()) throw UsageError("there is no matrix that could be trellis-coded");
  if (left < fewest) too_few_bits(options.bits_per_weight);
  const DamageMeter meter(source, options.text);
  std::vector<Choice> choices;
  for (const CodedLayer& layer : layers) {
    if (options.cancelled.cancelled()) throw Interrupted();
    const double damage = meter.damage(
        layer.tensor->name(), decoded(*layer.tensor, layer.probe, conversion.trellis->scale));
    Choice choice{layer.name, layer.tensor->elements(), {}};
    for (const auto& [bits, format] : layer.widths) {
      choice.damage[bits] = damage * relative_error(format) / relative_error(layer.probe);
    }
    choices.push_back(std::move(choice));
    if (options.progress) {
      options.progress(static_cast<int>(choices.size()), static_cast<int>(layers.size()));
    }
  }
  const std::map<std::string, double> bits = allocate(choices, 0, left / coded);
  std::map<std::string, TrellisFormat> formats;
  for (const CodedLayer& layer : layers) {
    formats[layer.name] = layer.widths.at(bits.at(layer.name));
  }
  return formats;
}

}  // namespace espalier::conversion
