#pragma once

#include "models/config_reader.h"
#include "models/descriptor.h"
#include "models/gguf_reader.h"

namespace espalier::models {

/// The text model of Gemma 3: five sliding-window layers to each full one, with a RoPE of their
/// own; norms before and after both parts.
Descriptor read_gemma3(ConfigReader& config);
Descriptor read_gemma3(const GgufReader& file);

}  // namespace espalier::models
