#pragma once

#include <string>

#include "generation/engine.h"
#include "models/model.h"

namespace espalier::generation {

/// What the command line's `--dtype` ("float32" or "f32", "bfloat16", "float16"; empty: the model's
/// own), `--activations` ("int8", "int15", "f32"; empty: what suits the weights) and `--numeric`
/// ("integer", "reference"; empty: integer) mean. Throws `UsageError` for anything else.
models::LoadOptions parse_load_options(const std::string& dtype, const std::string& activations,
                                       const std::string& numeric = {});

/// All that an engine's options say of loading.
models::LoadOptions load_options(const EngineOptions& options);

mlx::core::Dtype kv_dtype(KvType type);

}  // namespace espalier::generation
