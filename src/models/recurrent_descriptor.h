#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "layers/activation.h"

namespace espalier::models {

/// The causal convolution in front of a recurrence.
struct ConvolutionDescriptor {
  int taps;
  bool bias = false;
  layers::Activation activation = layers::Activation::silu;  // of its results, where there is one
};

/// Mamba (Gu & Dao 2023).
struct MambaDescriptor {
  /// RMS norms of time step, B and C between their projection and the scan.
  struct ParameterNorms {
    float eps;
    bool weights;  // named dt_layernorm, b_layernorm, c_layernorm
  };

  int channels;
  int states;     // of each channel
  int time_rank;  // of the time step's projection
  ConvolutionDescriptor convolution;
  bool bias = false;  // of the projections in and out
  std::optional<ParameterNorms> parameter_norms = {};
};

/// Mamba 2 (Dao & Gu 2024).
struct Mamba2Descriptor {
  /// RMS norm of the result, over each group of channels by itself.
  struct OutputNorm {
    float eps;
    int groups = 1;
    bool before_gate = false;
  };

  int heads;
  int head_dim;
  int groups;  // of heads that share B and C
  int states;
  ConvolutionDescriptor convolution;
  bool input_bias = false;  // of the projections
  float input_bias_scale = 1.0F;
  bool output_bias = false;
  float least_step = 0.0F;
  float most_step;  // may be infinite
  std::optional<OutputNorm> output_norm = {};
  /// Factors on gate, x, B, C and time step as they leave the projection (Falcon-H1).
  std::array<float, 5> input_scales = {1, 1, 1, 1, 1};

  int channels() const { return heads * head_dim; }
};

/// Gated DeltaNet (Yang, Kautz & Hatamizadeh 2024).
struct GatedDeltaDescriptor {
  int key_heads;
  int key_dim;
  int value_heads;
  int value_dim;
  int taps;
  layers::Activation activation = layers::Activation::silu;  // of the convolutions
  float rate_scale = 1.0F;  // on the delta rule's rate; 2 allows negative eigenvalues
  float norm_eps;
  /// Whose outputs side by side are q, k, v, gate, rate and decay; or q, k, v and gate of each key
  /// head by itself, and then rate and decay of each key head (Qwen3-Next).
  std::vector<std::string> projections;
  bool by_key_head = false;
  /// Rate and decay lie in the last projection by key head, the others do not (GGUF's Qwen3-Next).
  bool rates_by_key_head = false;
  std::vector<std::string> convolutions;  // of q, k and v; or one for all
  std::string norm;
  std::string output;
};

/// Kimi delta attention (Kimi Linear 2025): a gated delta rule with a decay for each key channel.
struct KimiDeltaDescriptor {
  int heads;
  int head_dim;
  int taps;
  layers::Activation activation = layers::Activation::silu;  // of the convolutions
  float norm_eps;
};

/// Griffin's real-gated linear recurrent unit (De et al. 2024).
struct RgLruDescriptor {
  int channels;
  int heads;  // of the gates' block-diagonal matrices
  int taps;
  layers::Activation activation = layers::Activation::gelu_tanh;  // of the branch beside it
};

/// LFM2's doubly gated short convolution.
struct ShortConvolutionDescriptor {
  int channels;
  ConvolutionDescriptor convolution;  // `bias` is the projections' too
};

/// Lightning attention (MiniMax-01): linear attention with one fixed decay a head.
struct LightningDescriptor {
  int heads;
  int head_dim;
  float norm_eps;
  layers::Activation activation = layers::Activation::silu;  // of q, k and v
  std::vector<float> decay_rates;  // [heads]: a step multiplies the state by e^-rate
};

using RecurrentDescriptor =
    std::variant<MambaDescriptor, Mamba2Descriptor, GatedDeltaDescriptor, KimiDeltaDescriptor,
                 RgLruDescriptor, ShortConvolutionDescriptor, LightningDescriptor>;

}  // namespace espalier::models
