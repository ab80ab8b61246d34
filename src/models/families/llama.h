#pragma once

#include "models/config_reader.h"
#include "models/descriptor.h"
#include "models/gguf_reader.h"

namespace espalier::models {

/// Llama 1 to 3.3 and everything with the same layout (SmolLM 1 and 2, TinyLlama, Yi, …).
Descriptor read_llama(ConfigReader& config);
/// GGUF's "llama" also holds Mistral.
Descriptor read_llama(const GgufReader& file);

}  // namespace espalier::models
