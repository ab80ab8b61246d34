#include "models/print_recurrent.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/print.h"

namespace espalier::models {
namespace {

using nlohmann::ordered_json;

/// Infinity is no JSON number_or_infinity.
ordered_json number_or_infinity(float value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json("infinity");
}

void add(ordered_json& target, layers::Activation activation,
         layers::Activation usual = layers::Activation::silu) {
  if (activation != usual) {
    target["activation"] = activation_name(activation);
  }
}

ordered_json describe(const ConvolutionDescriptor& part) {
  ordered_json result = {{"taps", part.taps}};
  if (part.bias) {
    result["bias"] = true;
  }
  add(result, part.activation);
  return result;
}

ordered_json describe(const MambaDescriptor& part) {
  ordered_json result = {{"channels", part.channels},
                         {"states", part.states},
                         {"time_rank", part.time_rank},
                         {"convolution", describe(part.convolution)}};
  if (part.bias) {
    result["bias"] = true;
  }
  if (part.parameter_norms) {
    result["parameter_norms"] = {{"eps", number_or_infinity(part.parameter_norms->eps)},
                                 {"weights", part.parameter_norms->weights}};
  }
  return {{"mamba", std::move(result)}};
}

ordered_json describe(const Mamba2Descriptor& part) {
  ordered_json result = {
      {"heads", part.heads},
      {"head_dim", part.head_dim},
      {"groups", part.groups},
      {"states", part.states},
      {"convolution", describe(part.convolution)},
      {"steps", {number_or_infinity(part.least_step), number_or_infinity(part.most_step)}}};
  if (part.input_bias || part.output_bias) {
    result["bias"] = {{"input", part.input_bias}, {"output", part.output_bias}};
    if (part.input_bias_scale != 1.0F) {
      result["bias"]["input_scale"] = number_or_infinity(part.input_bias_scale);
    }
  }
  if (part.output_norm) {
    result["output_norm"] = {{"eps", number_or_infinity(part.output_norm->eps)},
                             {"groups", part.output_norm->groups},
                             {"before_gate", part.output_norm->before_gate}};
  }
  if (std::ranges::any_of(part.input_scales, [](float scale) { return scale != 1.0F; })) {
    result["input_scales"] = part.input_scales;
  }
  return {{"mamba2", std::move(result)}};
}

ordered_json describe(const GatedDeltaDescriptor& part) {
  ordered_json result = {{"key_heads", part.key_heads},
                         {"key_dim", part.key_dim},
                         {"value_heads", part.value_heads},
                         {"value_dim", part.value_dim},
                         {"taps", part.taps},
                         {"norm_eps", number_or_infinity(part.norm_eps)}};
  if (part.rate_scale != 1.0F) {
    result["rate_scale"] = part.rate_scale;
  }
  add(result, part.activation);
  return {{"gated_delta", std::move(result)}};
}

ordered_json describe(const KimiDeltaDescriptor& part) {
  ordered_json result = {{"heads", part.heads},
                         {"head_dim", part.head_dim},
                         {"taps", part.taps},
                         {"norm_eps", number_or_infinity(part.norm_eps)}};
  add(result, part.activation);
  return {{"kimi_delta", std::move(result)}};
}

ordered_json describe(const RgLruDescriptor& part) {
  ordered_json result = {{"channels", part.channels}, {"heads", part.heads}, {"taps", part.taps}};
  add(result, part.activation, layers::Activation::gelu_tanh);
  return {{"rg_lru", std::move(result)}};
}

ordered_json describe(const ShortConvolutionDescriptor& part) {
  return {{"short_convolution",
           {{"channels", part.channels}, {"convolution", describe(part.convolution)}}}};
}

ordered_json describe(const LightningDescriptor& part) {
  ordered_json result = {{"heads", part.heads},
                         {"head_dim", part.head_dim},
                         {"first_decay_rate", number_or_infinity(part.decay_rates.front())},
                         {"last_decay_rate", number_or_infinity(part.decay_rates.back())}};
  add(result, part.activation);
  return {{"lightning_attention", std::move(result)}};
}

}  // namespace

ordered_json to_json(const RecurrentDescriptor& part) {
  return std::visit([](const auto& kind) { return describe(kind); }, part);
}

}  // namespace espalier::models
