#pragma once

#include <vector>

#include "models/descriptor.h"
#include "state/kv_pool.h"
#include "state/recurrent_pool.h"

namespace espalier::models {

/// What a decoder's attention layers keep per token, in the pool's layer order.
std::vector<state::KvLayerShape> kv_layers(const Descriptor& descriptor);

/// What its recurrent layers keep per sequence.
std::vector<state::RecurrentLayerShape> recurrent_layers(const Descriptor& descriptor);

}  // namespace espalier::models
