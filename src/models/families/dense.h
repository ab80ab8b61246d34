#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "models/config_reader.h"
#include "models/descriptor.h"
#include "models/gguf_reader.h"
#include "models/rope.h"

namespace espalier::models {

/// The layout that most dense decoders vary: pre-norm RMS layers of grouped-query attention with
/// RoPE and a gated feed-forward part. A family starts from one of these and changes what differs.
Descriptor dense_decoder(ConfigReader& config);
Descriptor dense_decoder(const GgufReader& file);

/// What GGUF files call a dense decoder's tensors.
TensorNames gguf_names();

/// RMS norm with the epsilon under `key`.
NormDescriptor rms_norm(const ConfigReader& config, std::string_view key = "rms_norm_eps");
NormDescriptor rms_norm(const GgufReader& file);

/// Layer norm without bias, with the epsilon under `key`.
NormDescriptor layer_norm(const ConfigReader& config, std::string_view key);

/// The activation that `config.json` names under `key`. Throws `LoadError` for an unknown one.
layers::Activation read_activation(const ConfigReader& config, std::string_view key);

/// Sets the norms before both parts, and the final one, to `norm`.
void set_pre_norms(Descriptor& decoder, const NormDescriptor& norm);

/// Sets norms after both parts, none before, and the final one to `norm`.
void set_post_norms_only(Descriptor& decoder, const NormDescriptor& norm);

void set_activation(Descriptor& decoder, layers::Activation activation);
/// Makes the feed-forward parts plain instead of gated.
void set_plain_mlp(Descriptor& decoder);
/// Biases for q, k, v and the output of attention.
void set_attention_bias(Descriptor& decoder, bool bias);
void set_mlp_bias(Descriptor& decoder, bool bias);
/// Gives the layers marked in `sliding` (one entry a layer) this window, the others none.
void set_windows(Descriptor& decoder, const std::vector<bool>& sliding, int window);

/// Norms like the final one for the heads of q and k.
void set_qk_norm(Descriptor& decoder);

/// Gives every layer this RoPE, over the share of each head that the settings name.
void set_rope(Descriptor& decoder, const RopeSettings& settings, bool interleaved = false);

/// Which of `layers` layers slide when each `pattern`-th attends in full; none with pattern 0.
std::vector<bool> every_nth_full(std::size_t layers, int pattern);

/// Which of `layers` layers slide when the first of each `interval` attends in full.
std::vector<bool> all_but_each_first(std::size_t layers, int interval);

/// Which layers slide, from `layer_types`, or by `pattern` where the file has none. Throws
/// `LoadError` unless each layer has "full_attention" or "sliding_attention".
std::vector<bool> sliding_layers(const ConfigReader& config, int pattern);

}  // namespace espalier::models
