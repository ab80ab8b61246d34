#include "models/load_recurrent.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "layers/mlp.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;

/// Reads the parts that recurrent mixers have in common.
class RecurrentLoader {
 public:
  RecurrentLoader(ModuleBuilder& builder, std::string prefix)
      : builder_(builder), prefix_(std::move(prefix)) {}

  layers::Linear linear(const std::vector<std::string>& names, const std::vector<int>& outputs,
                        int inputs, bool bias = false) {
    std::vector<std::string> full;
    for (const std::string& each : names) {
      full.push_back(name(each));
    }
    return builder_.linear({}, full, outputs, inputs, bias);
  }

  std::vector<float> vector(const std::string& tensor, int size) {
    return renamed() ? builder_.weights().flat(name(tensor), size)
                     : builder_.weights().vector(name(tensor), size);
  }

  mx::array array(const std::string& name, int size) {
    return layers::to_array(vector(name, size));
  }

  kernels::RmsNorm rms_norm(const std::string& name, int size, float eps) {
    return {.weight = array(name, size), .eps = eps};
  }

  /// -e^A for A_log, which is how a state's decay rates are stored.
  mx::array negative_exp(const std::string& tensor, const std::vector<std::int64_t>& shape) {
    const auto size = static_cast<int>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
    if (renamed()) {
      return layers::to_array(vector(tensor, size));
    }
    std::vector<float> values = builder_.weights().values(name(tensor), shape);
    std::ranges::transform(values, values.begin(), [](float value) { return -std::exp(value); });
    return layers::to_array(values);
  }

  /// Depthwise convolutions [channels, 1, taps], whose channels lie behind one another. Where a
  /// file has them as several tensors these may be cut elsewhere: transformers saves equal parts.
  layers::Convolution convolution(const std::vector<std::string>& names,
                                  const std::vector<int>& channels,
                                  const ConvolutionDescriptor& part, bool activated) {
    std::vector<float> weight;
    std::vector<float> bias;
    const int total = std::reduce(channels.begin(), channels.end());
    std::vector<int> stored;
    for (const std::string& each : names) {
      stored.push_back(builder_.weights().outputs(name(each + ".weight")));
    }
    if (std::reduce(stored.begin(), stored.end()) != total) {
      stored = channels;
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string tensor = name(names[i] + ".weight");
      const std::vector<float> values =
          renamed() ? builder_.weights().flat(tensor, stored[i] * part.taps)
                    : builder_.weights().values(tensor, {stored[i], 1, part.taps});
      weight.insert(weight.end(), values.begin(), values.end());
      if (part.bias) {
        const std::vector<float> more = vector(names[i] + ".bias", stored[i]);
        bias.insert(bias.end(), more.begin(), more.end());
      }
    }
    // [channels, taps] -> [taps, channels]
    mx::array by_tap =
        mx::contiguous(mx::transpose(mx::reshape(layers::to_array(weight), {total, part.taps})));
    by_tap.eval();
    const bool silu = activated && part.activation == layers::Activation::silu;
    return {.kernel = {.weight = by_tap,
                       .bias = part.bias ? std::optional(layers::to_array(bias)) : std::nullopt,
                       .silu = silu},
            .function = activated && !silu
                            ? std::optional(layers::element_function(part.activation))
                            : std::nullopt};
  }

  /// The whole name of a tensor, or of a matrix without its suffix.
  std::string name(const std::string& tensor) const {
    const std::string stem = tensor.substr(0, tensor.find('.'));
    for (const auto& [usual, other] : builder_.names().recurrent_renamed) {
      if (usual == stem) {
        return prefix_ + other + tensor.substr(stem.size());
      }
    }
    return prefix_ + tensor;
  }
  /// Whether the file is one of GGUF, which holds some tensors otherwise.
  bool renamed() const { return !builder_.names().recurrent_renamed.empty(); }
  int width() const { return builder_.descriptor().width; }
  ModuleBuilder& builder() { return builder_; }

 private:
  ModuleBuilder& builder_;
  std::string prefix_;
};

layers::Mamba load(RecurrentLoader& loader, const MambaDescriptor& part) {
  const int channels = part.channels;
  std::optional<layers::Mamba::ParameterNorms> norms;
  if (part.parameter_norms) {
    const auto norm = [&](const std::string& name, int size) {
      return part.parameter_norms->weights
                 ? loader.rms_norm(name + ".weight", size, part.parameter_norms->eps)
                 : kernels::RmsNorm{.weight = mx::ones({size}), .eps = part.parameter_norms->eps};
    };
    norms = {.time_step = norm("dt_layernorm", part.time_rank),
             .b = norm("b_layernorm", part.states),
             .c = norm("c_layernorm", part.states)};
  }
  // [channels, states] -> [states, channels]
  mx::array a = mx::contiguous(mx::transpose(
      mx::reshape(loader.negative_exp("A_log", {channels, part.states}), {channels, part.states})));
  a.eval();
  return {.in_proj = loader.linear({"in_proj"}, {2 * channels}, loader.width(), part.bias),
          .conv1d = loader.convolution({"conv1d"}, {channels}, part.convolution, true),
          .x_proj = loader.linear({"x_proj"}, {part.time_rank + 2 * part.states}, channels),
          .dt_proj = loader.linear({"dt_proj"}, {channels}, part.time_rank),
          .out_proj = loader.linear({"out_proj"}, {loader.width()}, channels, part.bias),
          .scan = {.a = a,
                   .skip = loader.array("D", channels),
                   .step_bias = loader.array("dt_proj.bias", channels)},
          .parameter_norms = std::move(norms)};
}

layers::Mamba2 load(RecurrentLoader& loader, const Mamba2Descriptor& part) {
  const int channels = part.channels();
  const int shared = part.groups * part.states;
  const std::vector<int> sections = {channels, channels, shared, shared, part.heads};
  std::optional<mx::array> scales;
  if (std::ranges::any_of(part.input_scales, [](float scale) { return scale != 1.0F; })) {
    std::vector<float> values;
    for (std::size_t i = 0; i < sections.size(); ++i) {
      values.insert(values.end(), static_cast<std::size_t>(sections[i]), part.input_scales[i]);
    }
    scales = layers::to_array(values);
  }
  std::optional<layers::Mamba2::OutputNorm> norm;
  if (part.output_norm) {
    norm = {.weight = loader.array("norm.weight", channels),
            .eps = part.output_norm->eps,
            .groups = part.output_norm->groups,
            .before_gate = part.output_norm->before_gate};
  }
  const int inputs = 2 * channels + 2 * shared + part.heads;
  layers::Linear in_proj = loader.linear({"in_proj"}, {inputs}, loader.width(), part.input_bias);
  if (part.input_bias && part.input_bias_scale != 1.0F) {
    mx::array bias = *in_proj.bias() * mx::array(part.input_bias_scale);
    bias.eval();
    in_proj = layers::Linear(in_proj.weights(), std::move(bias), loader.builder().activations());
  }
  return {.heads = part.heads,
          .head_dim = part.head_dim,
          .groups = part.groups,
          .states = part.states,
          .in_proj = std::move(in_proj),
          .input_scales = std::move(scales),
          .conv1d = loader.convolution({"conv1d"}, {channels + 2 * shared}, part.convolution, true),
          .out_proj = loader.linear({"out_proj"}, {loader.width()}, channels, part.output_bias),
          .dt_bias = loader.array("dt_bias", part.heads),
          .a = loader.negative_exp("A_log", {part.heads}),
          .skip = mx::reshape(loader.array("D", part.heads), {part.heads, 1}),
          .least_step = part.least_step,
          .most_step = part.most_step,
          .output_norm = std::move(norm)};
}

/// The projections of a gated delta rule. Where rate and decay lie by key head they are taken
/// apart.
layers::Linear load_projections(RecurrentLoader& loader, const GatedDeltaDescriptor& part,
                                std::vector<int> outputs) {
  if (!part.rates_by_key_head) {
    return loader.linear(part.projections, outputs, loader.width());
  }
  const int group = part.value_heads / part.key_heads;
  std::vector<std::vector<int>> rows(2);
  for (int head = 0; head < part.key_heads; ++head) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (int each = 0; each < group; ++each) {
        rows[i].push_back((2 * head + static_cast<int>(i)) * group + each);
      }
    }
  }
  std::vector<std::string> others(part.projections.begin(), part.projections.end() - 1);
  outputs.resize(others.size());
  return loader.builder().join_linear(
      loader.linear(others, outputs, loader.width()),
      loader.builder().linear_rows(loader.name(part.projections.back()), rows, 2 * part.value_heads,
                                   loader.width(), false));
}

layers::GatedDelta load(RecurrentLoader& loader, const GatedDeltaDescriptor& part) {
  const int keys = part.key_heads * part.key_dim;
  const int values = part.value_heads * part.value_dim;
  // The sizes of what the projections give, as many as there are projections.
  std::vector<int> outputs = {keys, keys, values, values, part.value_heads, part.value_heads};
  if (part.by_key_head) {
    outputs = {2 * keys + 2 * values, 2 * part.value_heads};
  } else if (part.projections.size() < 6) {
    outputs = {2 * keys + values, values, part.value_heads, part.value_heads};
  }
  const std::vector<int> convolved = part.convolutions.size() == 1
                                         ? std::vector<int>{2 * keys + values}
                                         : std::vector<int>{keys, keys, values};
  return {.key_heads = part.key_heads,
          .key_dim = part.key_dim,
          .value_heads = part.value_heads,
          .value_dim = part.value_dim,
          .in_proj = load_projections(loader, part, outputs),
          .by_key_head = part.by_key_head,
          .conv1d = loader.convolution(part.convolutions, convolved,
                                       {.taps = part.taps, .activation = part.activation}, true),
          .dt_bias = loader.array("dt_bias", part.value_heads),
          .a = loader.negative_exp("A_log", {part.value_heads}),
          .rate_scale = part.rate_scale,
          .norm = loader.rms_norm(part.norm + ".weight", part.value_dim, part.norm_eps),
          .out_proj = loader.linear({part.output}, {loader.width()}, values)};
}

layers::KimiDelta load(RecurrentLoader& loader, const KimiDeltaDescriptor& part) {
  const int size = part.heads * part.head_dim;
  return {.heads = part.heads,
          .head_dim = part.head_dim,
          .in_proj = loader.linear({"q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj", "g_a_proj"},
                                   {size, size, size, part.heads, part.head_dim, part.head_dim},
                                   loader.width()),
          .conv1d = loader.convolution({"q_conv1d", "k_conv1d", "v_conv1d"}, {size, size, size},
                                       {.taps = part.taps, .activation = part.activation}, true),
          .f_b_proj = loader.linear({"f_b_proj"}, {size}, part.head_dim),
          .g_b_proj = loader.linear({"g_b_proj"}, {size}, part.head_dim),
          .dt_bias = loader.array("dt_bias", size),
          .a = mx::reshape(loader.negative_exp("A_log", {1, 1, part.heads, 1}), {part.heads, 1}),
          .o_norm = loader.rms_norm("o_norm.weight", part.head_dim, part.norm_eps),
          .out_proj = loader.linear({"o_proj"}, {loader.width()}, size)};
}

/// A head's gates: the block-diagonal matrices are stored [heads, inputs, outputs].
std::vector<layers::Linear> load_gates(RecurrentLoader& loader, const RgLruDescriptor& part) {
  const int size = part.channels / part.heads;
  layers::WeightReader& weights = loader.builder().weights();
  const std::vector<float> input_bias =
      weights.values(loader.name("rg_lru.input_gate_bias"), {part.heads, size});
  const std::vector<float> recurrent_bias =
      weights.values(loader.name("rg_lru.recurrent_gate_bias"), {part.heads, size});
  std::vector<layers::Linear> gates;
  for (int head = 0; head < part.heads; ++head) {
    const layers::MatrixPart matrix{.rows = layers::number_range(0, size),
                                    .total_rows = size,
                                    .columns = size,
                                    .transposed = true,
                                    .index = head,
                                    .count = part.heads};
    const auto first = static_cast<std::ptrdiff_t>(head) * size;
    std::vector<float> bias(input_bias.begin() + first, input_bias.begin() + first + size);
    bias.insert(bias.end(), recurrent_bias.begin() + first, recurrent_bias.begin() + first + size);
    gates.emplace_back(
        std::vector{weights.matrix_part(loader.name("rg_lru.input_gate_weight"), matrix),
                    weights.matrix_part(loader.name("rg_lru.recurrent_gate_weight"), matrix)},
        layers::to_array(bias), loader.builder().activations());
  }
  return gates;
}

layers::RgLru load(RecurrentLoader& loader, const RgLruDescriptor& part) {
  // The recurrence gate's exponent (De et al. 2024, equation 4).
  constexpr float exponent = 8.0F;
  std::vector<float> decay = loader.vector("rg_lru.recurrent_param", part.channels);
  for (float& value : decay) {
    value = -exponent * (std::max(value, 0.0F) + std::log1p(std::exp(-std::abs(value))));
  }
  return {.in_proj = loader.linear({"linear_x", "linear_y"}, {part.channels, part.channels},
                                   loader.width(), true),
          .function = layers::element_function(part.activation),
          .conv1d = loader.convolution({"conv_1d"}, {part.channels},
                                       {.taps = part.taps, .bias = true}, false),
          .gates = load_gates(loader, part),
          .log_decay = layers::to_array(decay),
          .out_proj = loader.linear({"linear_out"}, {loader.width()}, part.channels, true)};
}

layers::ShortConvolution load(RecurrentLoader& loader, const ShortConvolutionDescriptor& part) {
  const bool bias = part.convolution.bias;
  return {.in_proj = loader.linear({"in_proj"}, {3 * part.channels}, loader.width(), bias),
          .conv = loader.convolution({"conv"}, {part.channels}, part.convolution, false),
          .out_proj = loader.linear({"out_proj"}, {loader.width()}, part.channels, bias)};
}

layers::LightningAttention load(RecurrentLoader& loader, const LightningDescriptor& part) {
  const int size = part.heads * part.head_dim;
  std::vector<float> decay;
  for (const float rate : part.decay_rates) {
    decay.push_back(std::exp(-rate));
  }
  return {.heads = part.heads,
          .head_dim = part.head_dim,
          .in_proj = loader.linear({"qkv_proj", "output_gate"}, {3 * size, size}, loader.width()),
          .function = layers::element_function(part.activation),
          .decay = mx::reshape(layers::to_array(decay), {1, part.heads}),
          .norm = loader.rms_norm("norm.weight", size, part.norm_eps),
          .out_proj = loader.linear({"out_proj"}, {loader.width()}, size)};
}

struct StateShape {
  state::RecurrentLayerShape operator()(const MambaDescriptor& part) const {
    return {.taps = part.convolution.taps,
            .channels = part.channels,
            .floats = part.states * kernels::recurrent_stride(part.channels)};
  }
  state::RecurrentLayerShape operator()(const Mamba2Descriptor& part) const {
    return {.taps = part.convolution.taps,
            .channels = part.channels() + 2 * part.groups * part.states,
            .floats = part.heads * part.states * kernels::recurrent_stride(part.head_dim)};
  }
  state::RecurrentLayerShape operator()(const GatedDeltaDescriptor& part) const {
    return {.taps = part.taps,
            .channels = 2 * part.key_heads * part.key_dim + part.value_heads * part.value_dim,
            .floats = part.value_heads * part.key_dim * kernels::recurrent_stride(part.value_dim)};
  }
  state::RecurrentLayerShape operator()(const KimiDeltaDescriptor& part) const {
    return {.taps = part.taps,
            .channels = 3 * part.heads * part.head_dim,
            .floats = part.heads * part.head_dim * kernels::recurrent_stride(part.head_dim)};
  }
  state::RecurrentLayerShape operator()(const RgLruDescriptor& part) const {
    return {.taps = part.taps, .channels = part.channels, .floats = part.channels};
  }
  state::RecurrentLayerShape operator()(const ShortConvolutionDescriptor& part) const {
    return {.taps = part.convolution.taps, .channels = part.channels, .floats = 0};
  }
  state::RecurrentLayerShape operator()(const LightningDescriptor& part) const {
    return {.taps = 0,
            .channels = 0,
            .floats = part.heads * part.head_dim * kernels::recurrent_stride(part.head_dim)};
  }
};

}  // namespace

layers::RecurrentMixer load_recurrent(ModuleBuilder& builder, const RecurrentDescriptor& part,
                                      const std::string& prefix) {
  RecurrentLoader loader(builder, prefix + builder.names().recurrent);
  return std::visit([&](const auto& kind) -> layers::RecurrentMixer { return load(loader, kind); },
                    part);
}

layers::Mamba2 load_mamba2(ModuleBuilder& builder, const Mamba2Descriptor& part,
                           const std::string& prefix) {
  RecurrentLoader loader(builder, prefix + builder.names().recurrent);
  return load(loader, part);
}

state::RecurrentLayerShape recurrent_state(const RecurrentDescriptor& part) {
  return std::visit(StateShape(), part);
}

}  // namespace espalier::models
