#pragma once

#include "models/descriptor.h"

namespace espalier::models {

/// Gives every layer's feed-forward part this hidden size, for files that do not name it
/// `intermediate_size`.
inline void set_hidden(Descriptor& decoder, int hidden) {
  for (LayerDescriptor& layer : decoder.layers) {
    layer.mlp().hidden = hidden;
  }
}

}  // namespace espalier::models
