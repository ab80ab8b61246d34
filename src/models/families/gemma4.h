#pragma once

#include "models/config_reader.h"
#include "models/descriptor.h"
#include "models/rope.h"

namespace espalier::models {

// What Gemma 3n and Gemma 4 have in common.

/// Scores without a divisor, norms of queries, keys and values, and a RoPE each for sliding and
/// full layers.
void set_normed_attention(Descriptor& decoder, const NormDescriptor& norm,
                          const RopeSettings& local_rope, const RopeSettings& full_rope);

/// The last layers use the keys and values of the last layer of their type before them.
void share_keys(const ConfigReader& config, Descriptor& decoder);

/// A vector for each token and layer, normalized by `norm`, and its tensors' names.
void read_layer_inputs(const ConfigReader& config, Descriptor& decoder, const NormDescriptor& norm);

}  // namespace espalier::models
