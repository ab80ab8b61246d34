#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/linear.h"

namespace espalier::models {

struct RopeDescriptor {
  int dims;
  bool interleaved = false;
  std::vector<float> inv_freq;  // [dims/2]
  float magnitude = 1.0F;
};

struct AttentionDescriptor {
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
  int window = 0;  // 0: full
  float softcap = 0.0F;
  bool qk_norm = false;
  bool qkv_bias = false;
  bool output_bias = false;
  std::optional<RopeDescriptor> rope;
};

struct MlpDescriptor {
  int hidden;
  kernels::Gate gate;
  bool bias = false;
};

/// Which norms stand around a mixer or feed-forward part: before it, and after it but before the
/// residual is added (Gemma's sandwich).
struct NormDescriptor {
  float eps;
  bool weight_plus_one = false;  // the file holds w - 1
  bool post = false;
};

struct LayerDescriptor {
  AttentionDescriptor attention;
  MlpDescriptor mlp;
  NormDescriptor norm;
};

/// A causal decoder, read from config.json or GGUF metadata.
struct Descriptor {
  std::string family;  // "llama", "gemma3"
  int vocabulary;      // width of the logits
  int width;           // of the residual stream
  int context;         // positions the model was made for
  float embedding_scale = 1.0F;
  bool tied_head = false;
  float final_norm_eps;
  float logit_softcap = 0.0F;
  std::vector<LayerDescriptor> layers;
  std::vector<std::int32_t> end_tokens;  // from the checkpoint's configuration
};

}  // namespace espalier::models
