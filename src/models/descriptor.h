#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layers/activation.h"

namespace espalier::models {

/// Normalization of the rows of the residual stream, or of heads.
struct NormDescriptor {
  enum class Kind { rms, layer };

  Kind kind = Kind::rms;
  float eps = 0.0F;
  float weight_offset = 0.0F;  // the file holds weight - offset (Gemma: 1)
  bool weight = true;          // false: nothing learned
  bool bias = false;
};

struct RopeDescriptor {
  int dims;  // of each head, from the first on
  bool interleaved = false;
  std::vector<float> inv_freq;  // [dims/2]
  float magnitude = 1.0F;
};

/// Normalization of q and k before RoPE: each head by itself, or all heads together.
struct QkNormDescriptor {
  enum class Scope { head, projection };

  Scope scope = Scope::head;
  NormDescriptor norm = {};
};

struct AttentionDescriptor {
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
  int window = 0;  // 0: full
  float softcap = 0.0F;
  bool qkv_bias = false;
  bool output_bias = false;
  std::optional<QkNormDescriptor> qk_norm = {};
  std::optional<RopeDescriptor> rope = {};
};

/// Gated, down(activation(x Wg) * (x Wu)), or plain, down(activation(x Wu)).
struct MlpDescriptor {
  int hidden;
  layers::Activation activation = layers::Activation::silu;
  bool gated = true;
  bool bias = false;
};

/// Attention and feed-forward part of one layer. Each part reads the stream through its norm and
/// adds to it scale * post_norm(part).
struct LayerDescriptor {
  AttentionDescriptor attention;
  MlpDescriptor mlp;
  std::optional<NormDescriptor> attention_norm = {};
  std::optional<NormDescriptor> attention_post_norm = {};
  std::optional<NormDescriptor> mlp_norm = {};
  std::optional<NormDescriptor> mlp_post_norm = {};
  float residual_scale = 1.0F;
  /// Both parts read the stream as it was before the layer, instead of one after the other.
  bool parallel = false;
};

/// What a container and family call the tensors. The names inside a layer follow `layers`, the
/// layer's index and a dot; `.weight` and `.bias` are appended. A list with one name is a fused
/// matrix holding the parts below one another.
struct TensorNames {
  std::string embedding;
  std::string final_norm;
  std::string head;
  std::string layers;
  std::vector<std::string> qkv;
  std::string attention_output;
  std::string q_norm;
  std::string k_norm;
  std::vector<std::string> mlp_input;  // gate and up; or up alone
  std::string mlp_down;
  std::string attention_norm;
  std::string attention_post_norm;
  std::string mlp_norm;
  std::string mlp_post_norm;
};

/// A causal decoder, read from config.json or GGUF metadata.
struct Descriptor {
  std::string family;  // "llama", "gemma3"
  int vocabulary;      // width of the logits
  int width;           // of the residual stream
  int context;         // positions the model was made for
  float embedding_scale = 1.0F;
  bool tied_head = false;
  bool head_bias = false;
  NormDescriptor final_norm = {};
  float logit_scale = 1.0F;
  float logit_softcap = 0.0F;
  std::vector<LayerDescriptor> layers = {};
  std::vector<std::int32_t> end_tokens = {};  // from the checkpoint's configuration
  TensorNames names = {};
};

}  // namespace espalier::models
