#pragma once

#include <string>

#include "layers/recurrent_mixer.h"
#include "models/module_builder.h"
#include "state/recurrent_pool.h"

namespace espalier::models {

/// Builds a recurrent mixer of any kind; its tensors' names begin with `prefix` and the family's
/// `names.recurrent`. Throws `LoadError`.
layers::RecurrentMixer load_recurrent(ModuleBuilder& builder, const RecurrentDescriptor& part,
                                      const std::string& prefix);
layers::Mamba2 load_mamba2(ModuleBuilder& builder, const Mamba2Descriptor& part,
                           const std::string& prefix);

/// What a mixer keeps per sequence.
state::RecurrentLayerShape recurrent_state(const RecurrentDescriptor& part);

}  // namespace espalier::models
