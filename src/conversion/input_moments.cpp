#include "conversion/input_moments.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/error.h"
#include "conversion/rotation.h"
#include "conversion/sizes.h"
#include "conversion/tensor_stream.h"
#include "conversion/text_parts.h"
#include "generation/bundle.h"
#include "kernels/kv_block.h"
#include "layers/linear_observer.h"
#include "mlx/mlx.h"
#include "models/load_model.h"
#include "state/kv_pool.h"

namespace espalier::conversion {
namespace {

namespace mx = mlx::core;

/// As much of the text as is used, and how much of it is run at once.
constexpr std::size_t part_tokens = 128;
constexpr std::size_t most_parts = 512;
constexpr std::size_t parts_at_once = 8;
constexpr std::int64_t measured_bytes = std::int64_t{1} << 30;

/// Adds up the moments of the inputs of some tensors' maps.
class MomentsObserver : public layers::LinearObserver {
 public:
  explicit MomentsObserver(std::set<std::string> tensors) : tensors_(std::move(tensors)) {}

  void loaded(const std::string& tensor, const kernels::PackedMatrix& matrix) override {
    if (tensors_.contains(tensor)) names_[matrix.data.id()] = tensor;
  }

  void multiplied(const std::vector<kernels::PackedMatrix>& matrices,
                  const mx::array& inputs) override {
    std::shared_ptr<InputMoments> moments;
    for (const kernels::PackedMatrix& matrix : matrices) {
      const auto name = names_.find(matrix.data.id());
      if (name == names_.end()) continue;
      std::shared_ptr<InputMoments>& own = sums_[name->second];
      if (moments == nullptr) {
        if (own == nullptr) own = std::make_shared<InputMoments>();
        moments = own;
        add(inputs, *moments);
      }
      own = moments;  // matrices with the same inputs share them
    }
  }

  const std::map<std::string, std::shared_ptr<InputMoments>>& sums() const { return sums_; }

 private:
  static void add(const mx::array& inputs, InputMoments& moments) {
    const int rows = inputs.shape(0);
    const int width = inputs.shape(1);
    mx::array turned = mx::contiguous(mx::transpose(mx::astype(inputs, mx::float32)));
    turned.eval();
    const std::span<const float> values(turned.data<float>(), turned.size());
    const kernels::PackedMatrix packed = kernels::pack(arrays::TensorView{
        "inputs", arrays::StorageType::f32, {width, rows}, std::as_bytes(values)});
    mx::array product = mx::contiguous(
        kernels::linear(turned, {packed}, {.activations = kernels::ActivationFormat::f32}));
    product.eval();
    moments.width = width;
    moments.values.resize(product.size());
    for (std::size_t i = 0; i < moments.values.size(); ++i) {
      moments.values[i] += product.data<float>()[i];
    }
  }

  std::set<std::string> tensors_;
  std::map<std::uintptr_t, std::string> names_;
  std::map<std::string, std::shared_ptr<InputMoments>> sums_;
};

/// One pass; the observer takes what it wants before the logits, which nobody computes.
void run(models::Model& model, std::span<const std::vector<std::int32_t>> parts) {
  const auto count = static_cast<int>(parts.size());
  constexpr int blocks = static_cast<int>(part_tokens) / kernels::kv_block_tokens + 1;
  state::KvPool pool(model.kv_layers(), count * blocks, mx::float32,
                     {.layers = model.recurrent_layers(), .slots = count});
  std::vector<state::SequenceState> states;
  states.reserve(parts.size());
  models::Batch batch;
  for (const auto& part : parts) {
    states.emplace_back(pool);
    const auto first = static_cast<int>(batch.tokens.size());
    batch.sequences.push_back(
        {.first_row = first, .rows = static_cast<int>(part.size()), .state = &states.back()});
    batch.tokens.insert(batch.tokens.end(), part.begin(), part.end());
  }
  // All rows, so that the last layer sees all of them.
  for (int row = 0; row < static_cast<int>(batch.tokens.size()); ++row) {
    batch.logits_rows.push_back(row);
  }
  model.forward(batch, pool);
}

void transpose(std::vector<float>& square, std::int64_t width) {
  for (std::int64_t row = 0; row < width; ++row) {
    for (std::int64_t column = 0; column < row; ++column) {
      std::swap(square[size(row * width + column)], square[size(column * width + row)]);
    }
  }
}

}  // namespace

InputMomentsSource::InputMomentsSource(CalibrationText text,
                                       std::vector<std::pair<std::string, int>> tensors)
    : text_(std::move(text)), tensors_(std::move(tensors)) {
  attempt([&] {
    const auto bundle = generation::load_text_bundle(text_.model);
    const auto tokens = bundle.tokenizer->encode(text_.text, tokenizer::SpecialTokens::add);
    const std::size_t parts = std::clamp<std::size_t>(tokens.size() / part_tokens, 1, most_parts);
    parts_ = cut_text(tokens, parts, part_tokens);
  });
}

void InputMomentsSource::attempt(const std::function<void()>& task) {
  try {
    task();
  } catch (const base::LoadError&) {
    if (text_.required) throw;
    failed_ = true;
  } catch (const base::UsageError&) {
    if (text_.required) throw;
    failed_ = true;
  }
}

std::shared_ptr<const InputMoments> InputMomentsSource::moments(const std::string& tensor) {
  const auto found = measured_.find(tensor);
  if (found != measured_.end()) return found->second;
  const auto at =
      std::ranges::find(tensors_, tensor, &std::pair<std::string, int>::first) - tensors_.begin();
  if (size(at) == tensors_.size() || failed_) return nullptr;
  attempt([&] { measure(size(at)); });
  return failed_ ? nullptr : measured_.at(tensor);
}

void InputMomentsSource::measure(std::size_t first) {
  measured_.clear();
  std::set<std::string> names;
  std::int64_t bytes = 0;
  for (std::size_t i = first; i < tensors_.size(); ++i) {
    const std::int64_t width = tensors_[i].second;
    bytes += width * width * static_cast<std::int64_t>(sizeof(float));
    if (i > first && bytes > measured_bytes) break;
    names.insert(tensors_[i].first);
  }
  MomentsObserver observer(names);
  const models::LoadOptions load{.dtype = mx::float32,
                                 .activations = layers::ActivationFormat::f32};
  const auto model = models::load_model(text_.model, load, text_.file);
  for (std::size_t i = 0; i < parts_.size(); i += parts_at_once) {
    if (text_.cancelled.cancelled()) throw Interrupted();
    run(*model, std::span(parts_).subspan(i, std::min(parts_at_once, parts_.size() - i)));
  }
  for (const std::string& name : names) {
    const auto sum = observer.sums().find(name);
    measured_[name] = sum == observer.sums().end() ? nullptr : sum->second;
  }
}

InputMoments folded(InputMoments moments, const Fold& fold) {
  const std::int64_t width = moments.width;
  if (fold.input_scale) {
    // The map's own inputs are divided by what its weights are multiplied by.
    for (std::int64_t i = 0; i < width * width; ++i) {
      const float scale =
          (*fold.input_scale)[size(i / width)] * (*fold.input_scale)[size(i % width)];
      moments.values[size(i)] = scale == 0 ? 0 : moments.values[size(i)] / scale;
    }
  }
  if (fold.inputs) {
    fold.inputs->apply(moments.values);
    transpose(moments.values, width);
    fold.inputs->apply(moments.values);
  }
  return moments;
}

}  // namespace espalier::conversion
